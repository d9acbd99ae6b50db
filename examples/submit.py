r"""Run the pipeline as an application of `spark-submit`, which wants a file.

    spark-submit --master yarn --num-executors 20 \
        --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 \
        examples/submit.py pipeline run --tables s3a://bucket/history --bootstrap-server kafka:9092

Master, jars and settings of `spark-submit` override those of coopgroup.
"""

import runpy

if __name__ == "__main__":
    runpy.run_module("coopgroup.cli", run_name="__main__")
