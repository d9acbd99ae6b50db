import com.fasterxml.jackson.databind.JsonNode;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.MessageUtil;
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
