import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.TopicPartition;

/**
 * Prints what Kafka's own Java client puts on the wire for subscriptions and assignments, as JSON.
 *
 * <p>Run with the jars that coopgroup.testing fetches: {@code java -cp 'JARS/*' Vectors.java}. The
 * output is the origin of the golden vectors: the values next to the bytes, one object a line.
 */
public final class Vectors {
    private record Case(List<String> topics, byte[] userData, List<TopicPartition> owned,
                        int generation, String rack) {}

    public static void main(String[] arguments) {
        List<String> lines = new ArrayList<>();
        for (Case each : subscriptions()) {
            for (short version = 0; version <= 3; version++) {
                lines.add(subscription(version, each));
            }
        }
        for (Case each : assignments()) {
            for (short version = 0; version <= 3; version++) {
                lines.add(assignment(version, each));
            }
        }
        System.out.println("[\n" + String.join(",\n", lines) + "\n]");
    }

    private static List<Case> subscriptions() {
        byte[] some = {0, 1, (byte) 0xff};
        return List.of(
            new Case(List.of(), null, List.of(), -1, null),
            new Case(List.of("orders"), null, List.of(), -1, null),
            new Case(List.of("orders"), new byte[0], partitions("orders", 0, 2), 7, "rack-a"),
            new Case(List.of("payments", "orders"), some,
                join(partitions("payments", 1), partitions("orders", 2, 0, 5)), 2147483647, ""),
            new Case(List.of("заказы", "注文", "a.b_c-d"), "été".getBytes(StandardCharsets.UTF_8),
                join(partitions("注文", 3), partitions("a.b_c-d", 0)), 0, "zone-ß"),
            new Case(List.of("wide"), null,
                partitions("wide", IntStream.range(0, 300).toArray()), 41, null));
    }

    private static List<Case> assignments() {
        byte[] some = {0, 1, (byte) 0xff};
        return List.of(
            new Case(List.of(), null, List.of(), -1, null),
            new Case(List.of(), new byte[0], partitions("orders", 0, 2), -1, null),
            new Case(List.of(), some,
                join(partitions("payments", 1), partitions("orders", 2, 0, 5)), -1, null),
            new Case(List.of(), null, join(partitions("注文", 3), partitions("a.b_c-d", 0)), -1, null),
            new Case(List.of(), null,
                partitions("wide", IntStream.range(0, 300).toArray()), -1, null));
    }

    private static String subscription(short version, Case each) {
        Subscription value = new Subscription(each.topics(), buffer(each.userData()), each.owned(),
            each.generation(), Optional.ofNullable(each.rack()));
        ByteBuffer bytes = ConsumerProtocol.serializeSubscription(value, version);
        return "{\"kind\": \"subscription\", \"version\": " + version
            + ", \"topics\": " + strings(each.topics())
            + ", \"user_data_hex\": " + hexOrNull(each.userData())
            + ", \"owned\": " + grouped(each.owned())
            + ", \"generation\": " + each.generation()
            + ", \"rack\": " + (each.rack() == null ? "null" : quoted(each.rack()))
            + ", \"hex\": \"" + hex(bytes) + "\"}";
    }

    private static String assignment(short version, Case each) {
        Assignment value = new Assignment(each.owned(), buffer(each.userData()));
        ByteBuffer bytes = ConsumerProtocol.serializeAssignment(value, version);
        return "{\"kind\": \"assignment\", \"version\": " + version
            + ", \"assigned\": " + grouped(each.owned())
            + ", \"user_data_hex\": " + hexOrNull(each.userData())
            + ", \"hex\": \"" + hex(bytes) + "\"}";
    }

    private static List<TopicPartition> partitions(String topic, int... numbers) {
        return IntStream.of(numbers).mapToObj(number -> new TopicPartition(topic, number)).toList();
    }

    private static List<TopicPartition> join(List<TopicPartition> first, List<TopicPartition> second) {
        List<TopicPartition> all = new ArrayList<>(first);
        all.addAll(second);
        return Collections.unmodifiableList(all);
    }

    private static ByteBuffer buffer(byte[] bytes) {
        return bytes == null ? null : ByteBuffer.wrap(bytes);
    }

    private static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    private static String hexOrNull(byte[] bytes) {
        return bytes == null ? "null" : "\"" + HexFormat.of().formatHex(bytes) + "\"";
    }

    /** Partitions by topic: the values, in an order of their own; the bytes have the wire's. */
    private static String grouped(List<TopicPartition> partitions) {
        Map<String, List<Integer>> byTopic = new TreeMap<>();
        for (TopicPartition each : partitions) {
            byTopic.computeIfAbsent(each.topic(), topic -> new ArrayList<>()).add(each.partition());
        }
        return byTopic.entrySet().stream()
            .map(entry -> quoted(entry.getKey()) + ": " + entry.getValue())
            .collect(Collectors.joining(", ", "{", "}"));
    }

    private static String strings(List<String> values) {
        return values.stream().map(Vectors::quoted).collect(Collectors.joining(", ", "[", "]"));
    }

    /** JSON string in ASCII, so that the platform's encoding does not matter. */
    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            boolean plain = each >= ' ' && each < 127 && each != '"' && each != '\\';
            quoted.append(plain ? String.valueOf(each) : String.format("\\u%04x", (int) each));
        }
        return quoted.append('"').toString();
    }
}
