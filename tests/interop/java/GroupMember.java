import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a group by Kafka's own Java client, for tests that put it beside other clients.
 *
 * <p>{@code java -cp 'JARS/*' GroupMember.java BOOTSTRAP GROUP TOPIC ASSIGNOR_CLASS[,…] [KEY=VALUE …]}.
 * It prints one line for each event ({@code assigned}, {@code revoked}, {@code lost}, each with the
 * partitions; {@code consumed COUNT}) and leaves the group when its standard input ends.
 */
public final class GroupMember {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[1]);
        properties.put("partition.assignment.strategy", arguments[3]);
        properties.put("auto.offset.reset", "earliest");
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        for (int index = 4; index < arguments.length; index++) {
            String[] pair = arguments[index].split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties)) {
            consumer.subscribe(List.of(arguments[2]), new Printer());
            // available() sees no end of input, so a thread waits for it.
            Thread input = new Thread(GroupMember::awaitEndOfInput);
            input.setDaemon(true);
            input.start();
            while (input.isAlive()) {
                int count = consumer.poll(Duration.ofMillis(100)).count();
                if (count > 0) {
                    print("consumed " + count);
                }
            }
        }
    }

    private static void awaitEndOfInput() {
        try {
            System.in.readAllBytes();
        } catch (java.io.IOException closed) {
            print("input " + closed.getMessage());
        }
    }

    private static synchronized void print(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static final class Printer implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            print("assigned " + names(partitions));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            print("revoked " + names(partitions));
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            print("lost " + names(partitions));
        }

        private static String names(Collection<TopicPartition> partitions) {
            return partitions.stream().map(TopicPartition::toString)
                .collect(Collectors.toCollection(TreeSet::new)).toString();
        }
    }
}
