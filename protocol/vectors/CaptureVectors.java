import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.TopicPartition;

/** Prints what Kafka's Java client writes for the values of java_*.json: name, then hex. */
public final class CaptureVectors {
    private CaptureVectors() { }

    public static void main(String[] arguments) {
        captureSubscriptions();
        captureAssignments();
        captureUserData();
    }

    private static void captureSubscriptions() {
        List<TopicPartition> owned = partitions("orders", 2, 0, "payments", 1);
        for (short version = 0; version <= 3; version++) {
            print("subscription-v" + version, ConsumerProtocol.serializeSubscription(
                new Subscription(List.of("payments", "orders"), null, owned, 7, Optional.of("rack-a")), version));
            print("subscription-empty-v" + version, ConsumerProtocol.serializeSubscription(
                new Subscription(List.of(), null, List.of(), -1, Optional.empty()), version));
            print("subscription-user-data-v" + version, ConsumerProtocol.serializeSubscription(
                new Subscription(List.of("größe"), ByteBuffer.wrap(new byte[] {1, 2, 3}), List.of(), 0, Optional.of("")), version));
        }
    }

    private static void captureAssignments() {
        for (short version = 0; version <= 3; version++) {
            print("assignment-v" + version, ConsumerProtocol.serializeAssignment(
                new Assignment(partitions("orders", 0, 3, "payments", 1), null), version));
            print("assignment-empty-v" + version, ConsumerProtocol.serializeAssignment(
                new Assignment(List.of(), ByteBuffer.wrap(new byte[0])), version));
            print("assignment-user-data-v" + version, ConsumerProtocol.serializeAssignment(
                new Assignment(partitions("orders", 11, 4, "payments", 2147483647), ByteBuffer.wrap(new byte[] {9})), version));
        }
    }

    private static void captureUserData() {
        Assignment held = new Assignment(partitions("orders", 0, 3, "payments", 1), null);
        CooperativeStickyAssignor cooperative = new CooperativeStickyAssignor();
        print("user-data-cooperative-sticky-new", cooperative.subscriptionUserData(Set.of("orders")));
        cooperative.onAssignment(held, new ConsumerGroupMetadata("group", 42, "member", Optional.empty()));
        print("user-data-cooperative-sticky", cooperative.subscriptionUserData(Set.of("orders")));
        StickyAssignor sticky = new StickyAssignor();
        sticky.onAssignment(held, new ConsumerGroupMetadata("group", 42, "member", Optional.empty()));
        print("user-data-sticky", sticky.subscriptionUserData(Set.of("orders")));
    }

    private static List<TopicPartition> partitions(String first, int one, int two, String second, int three) {
        return new ArrayList<>(List.of(
            new TopicPartition(first, one), new TopicPartition(first, two), new TopicPartition(second, three)));
    }

    private static void print(String name, ByteBuffer written) {
        byte[] content = new byte[written.remaining()];
        written.duplicate().get(content);
        System.out.println(name + " " + HexFormat.of().formatHex(content));
    }
}
