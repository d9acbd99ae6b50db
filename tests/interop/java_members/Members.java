import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of groups by Kafka's own Java client, as many as a test wants in one process.
 *
 * <p>Commands come one a line: {@code start NAME TOPIC KEY=VALUE ...} and {@code stop NAME}, which
 * closes the consumer. Events go out one a line: {@code NAME taken|given|lost NANOS P,P,...} for
 * partitions, {@code NAME handed NANOS P:FIRST-LAST ...} for records, {@code NAME failed MESSAGE}
 * and {@code NAME stopped}. The clock is that of the machine, which other processes can read. All
 * members leave when the input ends.
 */
public final class Members {
    private static final Map<String, Member> MEMBERS = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        print("ready");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("start")) {
                Member member = new Member(words[1], words[2], Arrays.asList(words).subList(3, words.length));
                MEMBERS.put(words[1], member);
                member.start();
            } else {
                MEMBERS.remove(words[1]).leave();
            }
        }
        for (Member member : MEMBERS.values()) {
            member.leave();
        }
    }

    private static synchronized void print(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static final class Member extends Thread implements ConsumerRebalanceListener {
        private final String name;
        private final String topic;
        private final Properties properties = new Properties();
        private volatile boolean leaves;

        Member(String name, String topic, List<String> pairs) {
            this.name = name;
            this.topic = topic;
            setDaemon(true);
            properties.put("auto.offset.reset", "earliest");
            properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
            properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
            for (String pair : pairs) {
                String[] both = pair.split("=", 2);
                properties.put(both[0], both[1]);
            }
        }

        void leave() throws InterruptedException {
            leaves = true;
            join();
        }

        @Override
        public void run() {
            try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties)) {
                consumer.subscribe(List.of(topic), this);
                while (!leaves) {
                    tell(consumer.poll(Duration.ofMillis(20)));
                }
            } catch (RuntimeException error) {
                print(name + " failed " + error.getClass().getSimpleName());
            }
            print(name + " stopped");
        }

        private void tell(ConsumerRecords<byte[], byte[]> records) {
            StringBuilder ranges = new StringBuilder();
            for (TopicPartition partition : records.partitions()) {
                List<ConsumerRecord<byte[], byte[]>> some = records.records(partition);
                ranges.append(' ').append(partition.partition()).append(':')
                    .append(some.get(0).offset()).append('-')
                    .append(some.get(some.size() - 1).offset());
            }
            if (ranges.length() > 0) {
                print(name + " handed " + System.nanoTime() + ranges);
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            say("taken", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            say("given", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            say("lost", partitions);
        }

        private void say(String event, Collection<TopicPartition> partitions) {
            String numbers = partitions.stream().map(one -> String.valueOf(one.partition()))
                .collect(Collectors.joining(","));
            print(name + " " + event + " " + System.nanoTime() + " " + numbers);
        }
    }
}
