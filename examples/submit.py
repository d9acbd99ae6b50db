r"""The commands of `coopgroup` as an application of `spark-submit`, which needs a file.

The option `--packages` names Spark's Kafka source and Delta Lake (docs/pipeline.md):

    spark-submit --master yarn --num-executors 20 --packages ... examples/submit.py \
        pipeline run --tables s3a://bucket/history --bootstrap-server kafka:9092
"""

import runpy

if __name__ == "__main__":
    runpy.run_module("coopgroup", run_name="__main__")
