import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractStickyAssignor;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Times the assignors of Kafka's own Java client on groups that the benchmarks draw.
 *
 * <p>{@code java -cp 'JARS/*' AssignorBench.java}. Orders come on standard input, one a line, its
 * parts apart by tabs: group file, answer file, assignor, runs, longest run in ms. The files are
 * described in tests/benchmarks/assigning/groups.py, orders and answers in worker.py beside it.
 * CPU time is that of this thread: collector and compiler are not counted.
 */
public final class AssignorBench {
    private static final int GENERATION = 7;
    private static final int WARM_UPS = 5;
    private static final double WARM_UP_MS = 1_500;
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    /** The algorithm of CooperativeStickyAssignor; nothing of its target is withheld. */
    private static final class Sticky extends AbstractStickyAssignor {
        @Override
        public String name() {
            return "sticky";
        }

        @Override
        protected MemberData memberData(Subscription subscription) {
            return new MemberData(
                subscription.ownedPartitions(), subscription.generationId(), subscription.rackId());
        }
    }

    private record Topic(String name, int partitions) { }

    private record Member(String id, int subscription, int rack) { }

    /** A group as its file has it. */
    private record Group(List<Topic> topics, List<String> racks, List<List<String>> subscriptions,
                         List<Member> members, int[] owners, int[] replicas, int perPartition) {
        static Group read(Path path) throws IOException {
            try (DataInputStream in = new DataInputStream(
                    new BufferedInputStream(Files.newInputStream(path), 1 << 20))) {
                List<Topic> topics = new ArrayList<>();
                for (int left = in.readInt(); left > 0; left--) {
                    topics.add(new Topic(readString(in), in.readInt()));
                }
                List<String> racks = new ArrayList<>();
                for (int left = in.readInt(); left > 0; left--) {
                    racks.add(readString(in));
                }
                List<List<String>> subscriptions = new ArrayList<>();
                for (int left = in.readInt(); left > 0; left--) {
                    List<String> names = new ArrayList<>();
                    for (int number : readInts(in, in.readInt())) {
                        names.add(topics.get(number).name());
                    }
                    subscriptions.add(names);
                }
                List<Member> members = new ArrayList<>();
                for (int left = in.readInt(); left > 0; left--) {
                    members.add(new Member(readString(in), in.readInt(), in.readInt()));
                }
                int[] owners = readInts(in, in.readInt());
                int perPartition = in.readInt();
                int[] replicas = readInts(in, owners.length * perPartition);
                return new Group(
                    topics, racks, subscriptions, members, owners, replicas, perPartition);
            }
        }

        private static String readString(DataInputStream in) throws IOException {
            return new String(in.readNBytes(in.readInt()), StandardCharsets.US_ASCII);
        }

        private static int[] readInts(DataInputStream in, int count) throws IOException {
            int[] values = new int[count];
            for (int index = 0; index < count; index++) {
                values[index] = in.readInt();
            }
            return values;
        }

        Map<String, List<PartitionInfo>> partitions() {
            Node[] nodes = new Node[racks.size()];
            for (int rack = 0; rack < nodes.length; rack++) {
                nodes[rack] = new Node(rack, "localhost", 1, racks.get(rack));
            }
            Map<String, List<PartitionInfo>> byTopic = new HashMap<>();
            int place = 0;
            for (Topic topic : topics) {
                List<PartitionInfo> infos = new ArrayList<>();
                for (int partition = 0; partition < topic.partitions(); partition++, place++) {
                    Node[] replicaNodes = new Node[perPartition];
                    for (int replica = 0; replica < perPartition; replica++) {
                        replicaNodes[replica] = nodes[replicas[place * perPartition + replica]];
                    }
                    infos.add(new PartitionInfo(
                        topic.name(), partition, null, replicaNodes, replicaNodes));
                }
                byTopic.put(topic.name(), infos);
            }
            return byTopic;
        }

        Map<String, Subscription> members(Map<String, Integer> numberOf) {
            List<List<TopicPartition>> owned = new ArrayList<>();
            for (int member = 0; member < members.size(); member++) {
                owned.add(new ArrayList<>());
            }
            int place = 0;
            for (Topic topic : topics) {
                for (int partition = 0; partition < topic.partitions(); partition++, place++) {
                    if (owners[place] >= 0) {
                        owned.get(owners[place]).add(new TopicPartition(topic.name(), partition));
                    }
                }
            }
            Map<String, Subscription> byId = new HashMap<>();
            for (int number = 0; number < members.size(); number++) {
                Member member = members.get(number);
                numberOf.put(member.id(), number);
                byId.put(member.id(), new Subscription(
                    subscriptions.get(member.subscription()), null, owned.get(number), GENERATION,
                    member.rack() < 0 ? Optional.empty() : Optional.of(racks.get(member.rack()))));
            }
            return byId;
        }

        int[] holders(Map<String, List<TopicPartition>> assigned, Map<String, Integer> numberOf) {
            Map<String, Integer> first = new HashMap<>();
            int place = 0;
            for (Topic topic : topics) {
                first.put(topic.name(), place);
                place += topic.partitions();
            }
            int[] holders = new int[owners.length];
            Arrays.fill(holders, -1);
            assigned.forEach((id, partitions) -> {
                for (TopicPartition each : partitions) {
                    holders[first.get(each.topic()) + each.partition()] = numberOf.get(id);
                }
            });
            return holders;
        }
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            System.out.println(carryOut(line.split("\t")));
            System.out.flush();
        }
    }

    private static String carryOut(String[] order) throws IOException {
        AbstractPartitionAssignor assignor = switch (order[2]) {
            case "sticky" -> new Sticky();
            case "range" -> new RangeAssignor();
            case "round-robin" -> new RoundRobinAssignor();
            default -> null;
        };
        if (assignor == null) {
            return "no such assignor";
        }
        Group group = Group.read(Path.of(order[0]));
        Map<String, Integer> numberOf = new HashMap<>();
        Map<String, List<PartitionInfo>> partitions = group.partitions();
        Map<String, Subscription> members = group.members(numberOf);
        int runs = Integer.parseInt(order[3]);
        double limitMs = Double.parseDouble(order[4]);
        List<Double> timesMs = new ArrayList<>();
        Map<String, List<TopicPartition>> assigned = null;
        double warmMs = 0;
        for (int warmUp = 0; warmUp < WARM_UPS && warmMs < WARM_UP_MS; warmUp++) {
            long beganNs = THREADS.getCurrentThreadCpuTime();
            assigned = assignor.assignPartitions(new HashMap<>(partitions), members);
            double tookMs = (THREADS.getCurrentThreadCpuTime() - beganNs) / 1e6;
            warmMs += tookMs;
            if (tookMs > limitMs) {
                timesMs.add(tookMs);
                runs = 0;
                break;
            }
        }
        for (int run = 0; run < runs; run++) {
            Map<String, List<PartitionInfo>> fresh = new HashMap<>(partitions);
            assigned = null;
            System.gc();
            long beganNs = THREADS.getCurrentThreadCpuTime();
            assigned = assignor.assignPartitions(fresh, members);
            timesMs.add((THREADS.getCurrentThreadCpuTime() - beganNs) / 1e6);
        }
        write(group.holders(assigned, numberOf), Path.of(order[1]));
        StringBuilder answer = new StringBuilder();
        timesMs.forEach(ms -> answer.append(String.format("%.3f ", ms)));
        return answer.toString().trim();
    }

    private static void write(int[] holders, Path path) throws IOException {
        try (DataOutputStream out = new DataOutputStream(
                new BufferedOutputStream(Files.newOutputStream(path), 1 << 20))) {
            for (int holder : holders) {
                out.writeInt(holder);
            }
        }
    }
}
