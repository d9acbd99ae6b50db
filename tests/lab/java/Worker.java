import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import sun.misc.Signal;

/**
 * The worker of a trial with Kafka's own consumer: what `tests/lab/worker.py` does, which explains it.
 *
 * <p>One difference: `poll` returns several records, and the log has each of them a moment later.
 */
public final class Worker implements ConsumerRebalanceListener {
    private static final Duration POLL = Duration.ofMillis(50);
    private static final Duration LOADING_MAX = Duration.ofSeconds(2);
    private static final ObjectMapper JSON = new ObjectMapper();

    private static volatile boolean isClosing;

    private final List<String> topics = new ArrayList<>();
    private final int partitionsPerTopic;
    private final long commitIntervalNs;
    private final Properties settings = new Properties();
    private final RowLog rows;
    private final FileChannel events;
    private final Map<Integer, Long> positions = new TreeMap<>();
    private final Map<Integer, Integer> spells = new HashMap<>();
    private KafkaConsumer<byte[], byte[]> consumer;

    public static void main(String[] arguments) throws IOException {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        Worker worker = new Worker(JSON.readTree(input.readLine()));
        Signal.handle(new Signal("TERM"), signal -> isClosing = true);
        Signal.handle(new Signal("USR1"), signal -> isClosing = true); // it cannot hand over
        worker.loadCode();
        worker.write("ready", Map.of());
        if (!"go".equals(input.readLine())) {
            return;
        }
        Thread parent = new Thread(() -> waitForEnd(input));
        parent.setDaemon(true);
        parent.start();
        worker.run();
    }

    private static void waitForEnd(BufferedReader input) {
        try {
            while (input.readLine() != null) {
                continue;
            }
        } catch (IOException error) {
            error.printStackTrace();
        }
        isClosing = true;
    }

    private Worker(JsonNode spec) throws IOException {
        spec.get("topics").forEach(topic -> topics.add(topic.asText()));
        partitionsPerTopic = spec.get("partitions_per_topic").asInt();
        commitIntervalNs = spec.get("commit_interval_ms").asLong() * 1_000_000;
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        put(spec.get("client_config"));
        settings.put("group.id", spec.get("group_id").asText());
        settings.put("client.id", spec.get("name").asText());
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("group.protocol", "consumer"); // the broker sets the time-outs of these groups
        put(spec.get("extra_config"));
        String path = spec.get("log_path").asText();
        rows = new RowLog(Path.of(path + ".records"));
        events = FileChannel.open(Path.of(path + ".events"),
            StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    private void put(JsonNode given) {
        given.properties().forEach(one -> settings.put(one.getKey(), one.getValue().asText()));
    }

    /**
     * Reads records without a group, because a JVM loads its classes on first use.
     *
     * <p>Python's workers have loaded their code at this point, and a program of Go is complete.
     */
    private void loadCode() {
        Properties alone = new Properties();
        alone.putAll(settings);
        alone.remove("group.id");
        try (KafkaConsumer<byte[], byte[]> reader = new KafkaConsumer<>(alone)) {
            reader.assign(List.of(new TopicPartition(topics.get(0), 0)));
            reader.poll(LOADING_MAX);
        }
    }

    private void run() throws IOException {
        consumer = new KafkaConsumer<>(settings);
        write("started", Map.of());
        consumer.subscribe(topics, this);
        long nextCommit = System.nanoTime() + commitIntervalNs;
        while (!isClosing) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                writeDown(record);
            }
            if (commitIntervalNs > 0 && System.nanoTime() >= nextCommit) {
                commit(positions.keySet());
                nextCommit = System.nanoTime() + commitIntervalNs;
            }
        }
        write("closing", Map.of());
        consumer.close();
        write("closed", Map.of());
    }

    private void writeDown(ConsumerRecord<byte[], byte[]> record) throws IOException {
        long now = System.nanoTime();
        byte[] value = record.value();
        long produced = value == null || value.length < Long.BYTES ? 0
            : ByteBuffer.wrap(value).order(ByteOrder.LITTLE_ENDIAN).getLong();
        int partition = number(new TopicPartition(record.topic(), record.partition()));
        rows.append(now, produced, record.offset(), partition, spells.getOrDefault(partition, 0));
        positions.put(partition, record.offset() + 1);
    }

    private void commit(Collection<Integer> partitions) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        List<List<Long>> written = new ArrayList<>();
        for (int partition : partitions) {
            Long position = positions.get(partition);
            if (position != null) {
                offsets.put(new TopicPartition(topics.get(partition / partitionsPerTopic),
                    partition % partitionsPerTopic), new OffsetAndMetadata(position));
                written.add(List.of((long) partition, position));
            }
        }
        if (offsets.isEmpty()) {
            return;
        }
        long began = System.nanoTime();
        String reason = null;
        try {
            consumer.commitSync(offsets);
        } catch (KafkaException error) {
            reason = error.toString();
        }
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("took_ms", Math.round((System.nanoTime() - began) / 1e5) / 10.0);
        fields.put("positions", written);
        fields.put("reason", reason);
        write(reason == null ? "committed" : "commit_failed", fields);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        List<Integer> numbers = numbers(partitions);
        for (int number : numbers) {
            spells.merge(number, 1, Integer::sum);
            positions.remove(number); // later owners have committed new positions
        }
        write("assigned", Map.of("partitions", numbers));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        List<Integer> numbers = numbers(partitions);
        write("revoking", Map.of("partitions", numbers));
        commit(numbers);
        positions.keySet().removeAll(numbers);
        write("revoked", Map.of("partitions", numbers));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        List<Integer> numbers = numbers(partitions);
        positions.keySet().removeAll(numbers);
        write("lost", Map.of("partitions", numbers));
    }

    private int number(TopicPartition partition) {
        return topics.indexOf(partition.topic()) * partitionsPerTopic + partition.partition();
    }

    private List<Integer> numbers(Collection<TopicPartition> partitions) {
        return partitions.stream().map(this::number).sorted().toList();
    }

    private void write(String name, Map<String, Object> fields) {
        Map<String, Object> event = Map.of("at_ns", System.nanoTime(), "name", name, "fields", fields);
        try {
            events.write(ByteBuffer.wrap((JSON.writeValueAsString(event) + "\n").getBytes()));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Log of records, as `tests/lab/recording.py` defines it. */
    private static final class RowLog {
        private static final int ROW_BYTES = 32;
        private static final int CHUNK_BYTES = (1 << 18) * ROW_BYTES;

        private final FileChannel file;
        private MappedByteBuffer chunk;

        RowLog(Path path) throws IOException {
            file = FileChannel.open(path, StandardOpenOption.CREATE_NEW,
                StandardOpenOption.READ, StandardOpenOption.WRITE);
            grow();
        }

        void append(long at, long produced, long offset, int partition, int spell)
                throws IOException {
            if (!chunk.hasRemaining()) {
                grow();
            }
            int start = chunk.position();
            chunk.putLong(start + 8, produced).putLong(start + 16, offset);
            chunk.putInt(start + 24, partition).putInt(start + 28, spell);
            VarHandle.releaseFence(); // a reader takes a row with a moment for complete
            chunk.putLong(start, at);
            chunk.position(start + ROW_BYTES);
        }

        private void grow() throws IOException {
            chunk = file.map(FileChannel.MapMode.READ_WRITE, file.size(), CHUNK_BYTES);
            chunk.order(ByteOrder.LITTLE_ENDIAN);
        }
    }
}
