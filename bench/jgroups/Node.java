import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.jgroups.Channel;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.ReceiverAdapter;

/** A node over JGroups, TCP, that speaks the lines of bench/node.py. */
public class Node extends ReceiverAdapter {
    private static final int HEAD_BYTES = 14;
    private static final int WARMING = -1;
    private static final long NEVER = Long.MAX_VALUE;
    private static final PrintStream OUT = System.out;

    private final int index;
    private final int sizeBytes;
    private final boolean timed;
    private final boolean paced;
    private final String[] ports;

    private final Map<Integer, BitSet> seen = new HashMap<>();
    private final Set<Integer> warmed = new HashSet<>();
    private final List<Long> latencies = new ArrayList<>();
    private long received;
    private long duplicates;
    private long expected = NEVER;
    private int next;
    private JChannel channel;

    private Node(Map<String, String> told) {
        index = Integer.parseInt(told.get("index"));
        sizeBytes = Math.max(HEAD_BYTES, Integer.parseInt(told.get("size")));
        timed = told.get("timed").equals("1");
        paced = told.get("paced").equals("1");
        ports = told.get("ports").split(",");
    }

    private static synchronized void say(Object... words) {
        StringBuilder line = new StringBuilder();
        for (Object word : words) line.append(line.length() == 0 ? "" : " ").append(word);
        OUT.println(line);
        OUT.flush();
    }

    @Override
    public synchronized void receive(Message message) {
        byte[] payload = message.getBuffer(); // a copy, as an application would be given
        ByteBuffer head = ByteBuffer.wrap(payload).order(ByteOrder.LITTLE_ENDIAN);
        int author = head.getShort() & 0xFFFF;
        int sequence = head.getInt();
        long sentNs = head.getLong();
        if (author == index) return;
        if (sequence == WARMING) {
            warmed.add(author);
            return;
        }
        BitSet had = seen.computeIfAbsent(author, nobody -> new BitSet());
        if (had.get(sequence)) {
            duplicates++;
            return;
        }
        had.set(sequence);
        if (timed) latencies.add(System.nanoTime() - sentNs);
        received++;
        if (received == 1) say("first", System.nanoTime());
        if (received == expected) say("done", System.nanoTime());
    }

    private void publish(int sequence) throws Exception {
        ByteBuffer payload = ByteBuffer.allocate(sizeBytes).order(ByteOrder.LITTLE_ENDIAN);
        payload.putShort((short) index).putInt(sequence).putLong(System.nanoTime());
        channel.send(new Message(null, null, payload.array()));
    }

    private void send(int count, long ratePerS) {
        try {
            long beganNs = System.nanoTime();
            for (int turn = 0; turn < count; turn++) {
                if (ratePerS > 0) {
                    long waitNs = beganNs + turn * 1_000_000_000L / ratePerS - System.nanoTime();
                    if (waitNs > 0) Thread.sleep(waitNs / 1_000_000, (int) (waitNs % 1_000_000));
                }
                publish(next++);
            }
            say("sent", beganNs, System.nanoTime());
        } catch (Exception problem) {
            problem.printStackTrace();
        }
    }

    /** The stack: TCP that bundles small messages, found through the first node, reliable, with flow control. */
    private String stack() {
        return "TCP(bind_addr=127.0.0.1;bind_port=" + ports[index] + ";port_range=0;loopback=true;enable_bundling=true"
            + ";enable_diagnostics=false;max_bundle_size=64000;max_bundle_timeout=" + (paced ? 1 : 5)
            + ";thread_pool.queue_enabled=false;thread_pool.max_threads=20;thread_pool.rejection_policy=run"
            + ";oob_thread_pool.rejection_policy=run)"
            + ":TCPPING(initial_hosts=127.0.0.1[" + ports[0] + "];port_range=0;timeout=5000;num_initial_members=1)"
            + ":MERGE2(min_interval=1000;max_interval=3000):FD_SOCK(bind_addr=127.0.0.1):VERIFY_SUSPECT"
            + ":pbcast.NAKACK(use_mcast_xmit=false):UNICAST:pbcast.STABLE"
            + ":pbcast.GMS(print_local_addr=false;join_timeout=15000):UFC:MFC(max_credits=2M):FRAG2(frag_size=60K)";
    }

    private void connect() throws Exception {
        long beganNs = System.nanoTime();
        channel = new JChannel(stack());
        channel.setReceiver(this);
        channel.setOpt(Channel.LOCAL, false);
        channel.connect("bench");
        say("ready", "127.0.0.1:" + ports[index], beganNs);
    }

    private synchronized void report() {
        say("report", System.nanoTime(), received, duplicates, warmed.size(), 0, 0);
    }

    private synchronized void tellGaps() {
        long gaps = 0;
        for (BitSet had : seen.values()) gaps += had.length() - Math.max(0, had.nextSetBit(0)) - had.cardinality();
        say("gaps", gaps);
    }

    private synchronized void expect(long count) {
        latencies.clear();
        expected = received + count;
        say("expecting");
    }

    private synchronized void tellLatencies() {
        List<Object> words = new ArrayList<>();
        words.add("latencies");
        words.addAll(latencies);
        say(words.toArray());
    }

    public static void main(String[] words) throws Exception {
        Map<String, String> told = new HashMap<>();
        for (String word : words) told.put(word.split("=", 2)[0], word.split("=", 2)[1]);
        System.setOut(System.err); // what a library prints must not look like an answer
        Node node = new Node(told);
        say("up");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] order = line.split(" ");
            switch (order[0]) {
                case "connect": node.connect(); break;
                case "warm": node.publish(WARMING); say("warmed"); break;
                case "expect": node.expect(Long.parseLong(order[1])); break;
                case "send":
                    new Thread(() -> node.send(Integer.parseInt(order[1]), Long.parseLong(order[2]))).start();
                    break;
                case "report": node.report(); break;
                case "gaps": node.tellGaps(); break;
                case "latencies": node.tellLatencies(); break;
                default: Runtime.getRuntime().halt(0);
            }
        }
        Runtime.getRuntime().halt(0);
    }
}
