import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.StandbyUpdateListener;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts per key with Kafka Streams: a RocksDB store with a changelog, one task per partition.
 *
 * <p>Arguments: bootstrap servers, input topic, application id, folder, microseconds that a restored
 * record takes, then settings as key=value. Each line of the standard input starts or ends one
 * KafkaStreams object: "start NAME LOG", "leave NAME" (leaves the group), "close NAME". When that
 * is done, the name is written as a line. Every processed record becomes a row in LOG, as tests.lab.recording
 * defines it; System.nanoTime() is the clock of Python's time.monotonic_ns() on Linux.
 */
public final class StreamsCounts {
    private static final String STORE = "counts";
    private static final Duration CLOSE_MAX = Duration.ofSeconds(30);

    private final String[] arguments;
    private final Map<String, KafkaStreams> running = new TreeMap<>();

    private StreamsCounts(String[] arguments) {
        this.arguments = arguments;
    }

    public static void main(String[] arguments) throws IOException {
        StreamsCounts host = new StreamsCounts(arguments);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "start" -> host.start(words[1], Path.of(words[2]));
                case "leave" -> host.close(words[1], CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
                default -> host.close(words[1], CloseOptions.GroupMembershipOperation.REMAIN_IN_GROUP);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private void start(String name, Path log) throws IOException {
        RowLog rows = new RowLog(log);
        Topology topology = new Topology();
        topology.addSource("input", Serdes.ByteArray().deserializer(), Serdes.ByteArray().deserializer(), arguments[1]);
        topology.addProcessor("count", () -> new Counter(rows), "input");
        topology.addStateStore(
            Stores.keyValueStoreBuilder(
                Stores.persistentKeyValueStore(STORE), Serdes.ByteArray(), Serdes.Long()),
            "count");
        Properties properties = new Properties();
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[2]);
        properties.put(StreamsConfig.CLIENT_ID_CONFIG, name);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, arguments[3] + "/" + name);
        for (int index = 5; index < arguments.length; index++) {
            String[] setting = arguments[index].split("=", 2);
            properties.put(setting[0], setting[1]);
        }
        KafkaStreams streams = new KafkaStreams(topology, properties);
        Pace pace = new Pace(Long.parseLong(arguments[4]) * 1_000);
        streams.setGlobalStateRestoreListener(pace);
        streams.setStandbyUpdateListener(pace);
        streams.start();
        running.put(name, streams);
        System.out.println(name);
    }

    private void close(String name, CloseOptions.GroupMembershipOperation operation) {
        KafkaStreams streams = running.remove(name);
        CloseOptions options = CloseOptions.groupMembershipOperation(operation).withTimeout(CLOSE_MAX);
        new Thread(() -> {
            streams.close(options);
            System.out.println(name);
        }).start();
    }

    /** Counts the records of one partition. */
    private static final class Counter implements Processor<byte[], byte[], Void, Void> {
        private final RowLog rows;
        private ProcessorContext<Void, Void> context;
        private KeyValueStore<byte[], Long> counts;
        private int spell;

        private Counter(RowLog rows) {
            this.rows = rows;
        }

        @Override
        public void init(ProcessorContext<Void, Void> given) {
            context = given;
            counts = given.getStateStore(STORE);
            spell = rows.nextSpell(given.taskId().partition());
        }

        @Override
        public void process(Record<byte[], byte[]> record) {
            Long before = counts.get(record.key());
            counts.put(record.key(), before == null ? 1L : before + 1);
            RecordMetadata where = context.recordMetadata().orElseThrow();
            long producedNs = ByteBuffer.wrap(record.value()).order(ByteOrder.LITTLE_ENDIAN).getLong();
            rows.append(producedNs, where.offset(), where.partition(), spell);
        }
    }

    /** Makes each restored record take a given time, in the thread that restores. */
    private record Pace(long nanosPerRecord) implements StateRestoreListener, StandbyUpdateListener {
        private void take(long records) {
            long end = System.nanoTime() + records * nanosPerRecord;
            while (System.nanoTime() < end) {
                LockSupport.parkNanos(end - System.nanoTime());
            }
        }

        @Override
        public void onRestoreStart(TopicPartition partition, String store, long start, long end) {}

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long records) {
            take(records);
        }

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long records) {}

        @Override
        public void onUpdateStart(TopicPartition partition, String store, long start) {}

        @Override
        public void onBatchLoaded(
            TopicPartition partition, String store, TaskId task, long end, long records, long logEnd) {
            take(records);
        }

        @Override
        public void onUpdateSuspended(
            TopicPartition partition, String store, long offset, long logEnd, SuspendReason reason) {}
    }

    /** The log of one KafkaStreams object; a row survives SIGKILL. */
    private static final class RowLog {
        private static final int ROW_BYTES = 32;
        private final FileChannel file;
        private final ByteBuffer row = ByteBuffer.allocateDirect(ROW_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        private final Map<Integer, Integer> spells = new ConcurrentHashMap<>();

        private RowLog(Path path) throws IOException {
            file = FileChannel.open(path, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
        }

        private int nextSpell(int partition) {
            return spells.merge(partition, 1, Integer::sum);
        }

        private synchronized void append(long producedNs, long offset, int partition, int spell) {
            row.clear();
            row.putLong(System.nanoTime()).putLong(producedNs).putLong(offset).putInt(partition).putInt(spell);
            row.flip();
            try {
                file.write(row);
            } catch (IOException failed) {
                throw new java.io.UncheckedIOException(failed);
            }
        }
    }
}
