import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Handles the records of a topic by Confluent's Parallel Consumer, in key order.
 *
 * <p>Arguments: bootstrap servers, topic, number of records, milliseconds of a handler, concurrency.
 * Prints the seconds from the first handler's begin to the last one's end.
 */
public final class ParallelBench {
    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[2]);
        long sleepMs = Long.parseLong(arguments[3]);
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", "parallel-" + System.nanoTime());
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        ParallelConsumerOptions<byte[], byte[]> options =
            ParallelConsumerOptions.<byte[], byte[]>builder()
                .consumer(consumer)
                .ordering(ProcessingOrder.KEY)
                .maxConcurrency(Integer.parseInt(arguments[4]))
                .build();
        ParallelStreamProcessor<byte[], byte[]> processor =
            ParallelStreamProcessor.createEosStreamProcessor(options);
        processor.subscribe(List.of(arguments[1]));
        AtomicInteger handled = new AtomicInteger();
        AtomicLong begin = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        processor.poll(
            context -> {
                begin.compareAndSet(0, System.nanoTime());
                try {
                    Thread.sleep(sleepMs);
                } catch (InterruptedException interrupted) {
                    throw new IllegalStateException(interrupted);
                }
                if (handled.incrementAndGet() == count) {
                    done.countDown();
                }
            });
        done.await();
        System.out.println((System.nanoTime() - begin.get()) / 1e9);
        processor.closeDontDrainFirst();
    }
}
