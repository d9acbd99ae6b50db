import com.fasterxml.jackson.databind.JsonNode;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupCurrentMemberAssignmentKey;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupCurrentMemberAssignmentKeyJsonConverter;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupCurrentMemberAssignmentValue;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupCurrentMemberAssignmentValueJsonConverter;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupMemberMetadataKey;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupMemberMetadataKeyJsonConverter;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupMemberMetadataValue;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupMemberMetadataValueJsonConverter;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupMetadataKey;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupMetadataKeyJsonConverter;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupMetadataValue;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupMetadataValueJsonConverter;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupPartitionMetadataKey;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupPartitionMetadataKeyJsonConverter;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupPartitionMetadataValue;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupPartitionMetadataValueJsonConverter;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupRegularExpressionKey;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupRegularExpressionKeyJsonConverter;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupRegularExpressionValue;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupRegularExpressionValueJsonConverter;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupTargetAssignmentMemberKey;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupTargetAssignmentMemberKeyJsonConverter;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupTargetAssignmentMemberValue;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupTargetAssignmentMemberValueJsonConverter;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupTargetAssignmentMetadataKey;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupTargetAssignmentMetadataKeyJsonConverter;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupTargetAssignmentMetadataValue;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupTargetAssignmentMetadataValueJsonConverter;
import org.apache.kafka.coordinator.group.generated.GroupMetadataKey;
import org.apache.kafka.coordinator.group.generated.GroupMetadataKeyJsonConverter;
import org.apache.kafka.coordinator.group.generated.GroupMetadataValue;
import org.apache.kafka.coordinator.group.generated.GroupMetadataValue.MemberMetadata;
import org.apache.kafka.coordinator.group.generated.GroupMetadataValueJsonConverter;
import org.apache.kafka.coordinator.group.generated.LegacyOffsetCommitKey;
import org.apache.kafka.coordinator.group.generated.LegacyOffsetCommitKeyJsonConverter;
import org.apache.kafka.coordinator.group.generated.OffsetCommitKey;
import org.apache.kafka.coordinator.group.generated.OffsetCommitKeyJsonConverter;
import org.apache.kafka.coordinator.group.generated.OffsetCommitValue;
import org.apache.kafka.coordinator.group.generated.OffsetCommitValueJsonConverter;

/** Prints java.json: what Kafka's group coordinator writes into __consumer_offsets, and how it reads. */
public final class CaptureInternalTopic {
    private static final long COMMITTED_MS = 1_730_000_000_000L;
    private static String separator = "";

    private CaptureInternalTopic() { }

    public static void main(String[] arguments) {
        System.out.println("{");
        System.out.println("  \"about\": \"Records of __consumer_offsets as Kafka's group coordinator writes them; \\\"says\\\" is what its own JSON converters say of them.\",");
        System.out.println("  \"generator\": \"CaptureInternalTopic.java with the jars of Kafka 4.3.0\",");
        System.out.print("  \"vectors\": [");
        keys();
        commits();
        groups();
        consumers();
        System.out.println("\n  ]\n}");
    }

    private static void keys() {
        LegacyOffsetCommitKey old = new LegacyOffsetCommitKey().setGroup("billing").setTopic("orders").setPartition(3);
        key("offset_key", "v0", LegacyOffsetCommitKeyJsonConverter.write(old, (short) 0), old);
        OffsetCommitKey now = new OffsetCommitKey().setGroup("größe").setTopic("orders").setPartition(Integer.MAX_VALUE);
        key("offset_key", "v1", OffsetCommitKeyJsonConverter.write(now, (short) 0), now);
        GroupMetadataKey group = new GroupMetadataKey().setGroup("billing");
        key("group_key", "v2", GroupMetadataKeyJsonConverter.write(group, (short) 0), group);
    }

    private static void commits() {
        for (short version = OffsetCommitValue.LOWEST_SUPPORTED_VERSION; version <= OffsetCommitValue.HIGHEST_SUPPORTED_VERSION; version++) {
            OffsetCommitValue plain = new OffsetCommitValue().setOffset(Long.MAX_VALUE).setMetadata("").setCommitTimestamp(COMMITTED_MS);
            commit("plain-v" + version, version, plain);
            OffsetCommitValue full = new OffsetCommitValue().setOffset(42).setMetadata("é".repeat(70)).setCommitTimestamp(COMMITTED_MS);
            if (version >= 3) {
                full.setLeaderEpoch(5);
            }
            if (version == 1) {
                full.setExpireTimestamp(COMMITTED_MS + 9);
            }
            if (version >= 4) {
                full.setTopicId(new Uuid(0x0123456789abcdefL, 77));
            }
            commit("full-v" + version, version, full);
        }
    }

    private static void groups() {
        for (short version = 0; version <= GroupMetadataValue.HIGHEST_SUPPORTED_VERSION; version++) {
            group("emptied-v" + version, version, new GroupMetadataValue()
                .setProtocolType("consumer").setGeneration(8).setProtocol(null).setLeader(null).setMembers(List.of()));
            group("stable-v" + version, version, new GroupMetadataValue()
                .setProtocolType("consumer").setGeneration(7).setProtocol("range").setLeader("c1-5c0f")
                .setMembers(List.of(member(version, "c1-5c0f", "i-1"), member(version, "c2-77aa", null))));
        }
    }

    private static MemberMetadata member(short version, String id, String instanceId) {
        MemberMetadata member = new MemberMetadata()
            .setMemberId(id).setClientId(id.substring(0, 2)).setClientHost("/127.0.0.1").setSessionTimeout(6_000)
            .setSubscription(new byte[] {0, 1}).setAssignment(new byte[] {0, 2, 3});
        if (version >= 1) {
            member.setRebalanceTimeout(300_000);
        }
        if (version >= 3) {
            member.setGroupInstanceId(instanceId);
        }
        return member;
    }

    private static final Uuid ORDERS = new Uuid(0x0123456789abcdefL, 77);
    private static final Uuid PAID = new Uuid(-5, 1L << 62);

    private static void consumers() {
        ConsumerGroupMetadataKey group = new ConsumerGroupMetadataKey().setGroupId("billing");
        key("consumer_key", "group", ConsumerGroupMetadataKeyJsonConverter.write(group, (short) 0), group);
        ConsumerGroupPartitionMetadataKey topics = new ConsumerGroupPartitionMetadataKey().setGroupId("billing");
        key("consumer_key", "topics", ConsumerGroupPartitionMetadataKeyJsonConverter.write(topics, (short) 0), topics);
        ConsumerGroupMemberMetadataKey member = new ConsumerGroupMemberMetadataKey().setGroupId("größe").setMemberId("m-1");
        key("consumer_key", "member", ConsumerGroupMemberMetadataKeyJsonConverter.write(member, (short) 0), member);
        ConsumerGroupTargetAssignmentMetadataKey target = new ConsumerGroupTargetAssignmentMetadataKey().setGroupId("billing");
        key("consumer_key", "target", ConsumerGroupTargetAssignmentMetadataKeyJsonConverter.write(target, (short) 0), target);
        ConsumerGroupTargetAssignmentMemberKey wanted = new ConsumerGroupTargetAssignmentMemberKey().setGroupId("billing").setMemberId("m-1");
        key("consumer_key", "target_of_member", ConsumerGroupTargetAssignmentMemberKeyJsonConverter.write(wanted, (short) 0), wanted);
        ConsumerGroupCurrentMemberAssignmentKey owned = new ConsumerGroupCurrentMemberAssignmentKey().setGroupId("billing").setMemberId("m-1");
        key("consumer_key", "assignment", ConsumerGroupCurrentMemberAssignmentKeyJsonConverter.write(owned, (short) 0), owned);
        ConsumerGroupRegularExpressionKey regex = new ConsumerGroupRegularExpressionKey().setGroupId("billing").setRegularExpression("ord.*");
        key("consumer_key", "regex", ConsumerGroupRegularExpressionKeyJsonConverter.write(regex, (short) 0), regex);

        ConsumerGroupMetadataValue epoch = new ConsumerGroupMetadataValue().setEpoch(7);
        consumer("group", ConsumerGroupMetadataValueJsonConverter.write(epoch, (short) 0), epoch);
        epoch.setMetadataHash(-3);
        consumer("group", ConsumerGroupMetadataValueJsonConverter.write(epoch, (short) 0), epoch);
        ConsumerGroupPartitionMetadataValue known = new ConsumerGroupPartitionMetadataValue().setTopics(List.of(
            new ConsumerGroupPartitionMetadataValue.TopicMetadata().setTopicId(ORDERS).setTopicName("orders").setNumPartitions(2)
                .setPartitionMetadata(List.of(new ConsumerGroupPartitionMetadataValue.PartitionMetadata().setPartition(1).setRacks(List.of("a", "b")))),
            new ConsumerGroupPartitionMetadataValue.TopicMetadata().setTopicId(PAID).setTopicName("bezahlt-ä").setNumPartitions(1)));
        consumer("topics", ConsumerGroupPartitionMetadataValueJsonConverter.write(known, (short) 0), known);
        ConsumerGroupMemberMetadataValue dynamic = new ConsumerGroupMemberMetadataValue()
            .setClientId("c1").setClientHost("/127.0.0.1").setSubscribedTopicNames(List.of("orders", "paid"))
            .setSubscribedTopicRegex("").setRebalanceTimeoutMs(300_000);
        consumer("member", ConsumerGroupMemberMetadataValueJsonConverter.write(dynamic, (short) 0), dynamic);
        ConsumerGroupMemberMetadataValue fixed = new ConsumerGroupMemberMetadataValue()
            .setInstanceId("i-1").setRackId("r").setClientId("c1").setClientHost("/127.0.0.1").setSubscribedTopicRegex("ord.*")
            .setServerAssignor("uniform");
        consumer("member", ConsumerGroupMemberMetadataValueJsonConverter.write(fixed, (short) 0), fixed);
        dynamic.setClassicMemberMetadata(new ConsumerGroupMemberMetadataValue.ClassicMemberMetadata().setSessionTimeoutMs(6_000).setSupportedProtocols(List.of(
            new ConsumerGroupMemberMetadataValue.ClassicProtocol().setName("range").setMetadata(new byte[] {0, 1}))));
        consumer("member", ConsumerGroupMemberMetadataValueJsonConverter.write(dynamic, (short) 0), dynamic);
        ConsumerGroupTargetAssignmentMetadataValue aim = new ConsumerGroupTargetAssignmentMetadataValue().setAssignmentEpoch(7);
        consumer("target", ConsumerGroupTargetAssignmentMetadataValueJsonConverter.write(aim, (short) 0), aim);
        ConsumerGroupTargetAssignmentMemberValue share = new ConsumerGroupTargetAssignmentMemberValue().setTopicPartitions(List.of(
            new ConsumerGroupTargetAssignmentMemberValue.TopicPartition().setTopicId(ORDERS).setPartitions(List.of(0, 3))));
        consumer("target_of_member", ConsumerGroupTargetAssignmentMemberValueJsonConverter.write(share, (short) 0), share);
        ConsumerGroupCurrentMemberAssignmentValue current = new ConsumerGroupCurrentMemberAssignmentValue()
            .setMemberEpoch(7).setPreviousMemberEpoch(6).setState((byte) 1)
            .setAssignedPartitions(List.of(held(ORDERS, 0, 3), held(PAID, 0))).setPartitionsPendingRevocation(List.of(held(ORDERS, 1)));
        consumer("assignment", ConsumerGroupCurrentMemberAssignmentValueJsonConverter.write(current, (short) 0), current);
        ConsumerGroupCurrentMemberAssignmentValue left = new ConsumerGroupCurrentMemberAssignmentValue().setMemberEpoch(-2);
        consumer("assignment", ConsumerGroupCurrentMemberAssignmentValueJsonConverter.write(left, (short) 0), left);
        ConsumerGroupRegularExpressionValue found = new ConsumerGroupRegularExpressionValue()
            .setTopics(List.of("orders")).setVersion(9).setTimestamp(COMMITTED_MS);
        consumer("regex", ConsumerGroupRegularExpressionValueJsonConverter.write(found, (short) 0), found);
    }

    private static ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions held(Uuid topic, Integer... partitions) {
        return new ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions().setTopicId(topic).setPartitions(List.of(partitions));
    }

    private static void consumer(String name, JsonNode says, ApiMessage value) {
        print("consumer_value", name, 0, says, MessageUtil.toVersionPrefixedBytes((short) 0, value));
    }

    private static void key(String kind, String name, JsonNode says, ApiMessage key) {
        print(kind, name, key.apiKey(), says, MessageUtil.toCoordinatorTypePrefixedBytes(key));
    }

    private static void commit(String name, short version, OffsetCommitValue value) {
        print("offset_value", name, version, OffsetCommitValueJsonConverter.write(value, version),
            MessageUtil.toVersionPrefixedBytes(version, value));
    }

    private static void group(String name, short version, GroupMetadataValue value) {
        if (version >= 2) {
            value.setCurrentStateTimestamp(COMMITTED_MS + 1);
        }
        print("group_value", name, version, GroupMetadataValueJsonConverter.write(value, version),
            MessageUtil.toVersionPrefixedBytes(version, value));
    }

    private static void print(String kind, String name, int version, JsonNode says, byte[] content) {
        System.out.print(separator + "\n    {\"kind\": \"" + kind + "\", \"name\": \"" + name + "\", \"version\": " + version
            + ", \"says\": " + says + ", \"hex\": \"" + HexFormat.of().formatHex(content) + "\"}");
        separator = ",";
    }
}
