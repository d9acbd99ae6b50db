// Times franz-go's balancers on groups that the benchmarks draw.
//
// Orders come on standard input, one a line, its parts apart by tabs: group file, answer file,
// assignor, runs, longest run in ms. The files are described in ../assigning/groups.py, orders
// and answers in worker.py beside it. CPU time is that of this thread, the collector's own threads
// are not counted. The sticky balancer finds what is owned in its user data, which it decodes
// while it balances: there is no other way in from outside.
package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	generation  = 7
	warmUps     = 2
	threadClock = 3 // CLOCK_THREAD_CPUTIME_ID
)

type topic struct {
	name       string
	partitions int
}

type member struct {
	id           string
	subscription int
}

type group struct {
	topics        []topic
	subscriptions [][]int
	members       []member
	owners        []int
	racks         int // of each partition
}

type reader struct {
	content []byte
}

func (r *reader) int() int {
	value := int(int32(binary.BigEndian.Uint32(r.content)))
	r.content = r.content[4:]
	return value
}

func (r *reader) string() string {
	length := r.int()
	text := string(r.content[:length])
	r.content = r.content[length:]
	return text
}

func (r *reader) ints() []int {
	values := make([]int, r.int())
	for index := range values {
		values[index] = r.int()
	}
	return values
}

func readGroup(path string) (group, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return group{}, err
	}
	r := reader{content}
	var g group
	for left := r.int(); left > 0; left-- {
		g.topics = append(g.topics, topic{r.string(), r.int()})
	}
	for left := r.int(); left > 0; left-- {
		r.string()
	}
	for left := r.int(); left > 0; left-- {
		g.subscriptions = append(g.subscriptions, r.ints())
	}
	for left := r.int(); left > 0; left-- {
		g.members = append(g.members, member{r.string(), r.int()})
		r.int() // its rack
	}
	g.owners = r.ints()
	g.racks = r.int()
	return g, nil
}

// joined is what JoinGroup answers to the leader.
func (g *group) joined(balancer kgo.GroupBalancer) []kmsg.JoinGroupResponseMember {
	owned := make([]map[string][]int32, len(g.members))
	for number := range owned {
		owned[number] = make(map[string][]int32)
	}
	place := 0
	for _, each := range g.topics {
		for partition := range each.partitions {
			if owner := g.owners[place]; owner >= 0 {
				owned[owner][each.name] = append(owned[owner][each.name], int32(partition))
			}
			place++
		}
	}
	var joined []kmsg.JoinGroupResponseMember
	for number, each := range g.members {
		var names []string
		for _, topic := range g.subscriptions[each.subscription] {
			names = append(names, g.topics[topic].name)
		}
		one := kmsg.NewJoinGroupResponseMember()
		one.MemberID = each.id
		one.ProtocolMetadata = balancer.JoinGroupMetadata(names, owned[number], generation)
		joined = append(joined, one)
	}
	return joined
}

func (g *group) holders(plan *kgo.BalancePlan) []byte {
	first := make(map[string]int)
	place := 0
	for _, each := range g.topics {
		first[each.name] = place
		place += each.partitions
	}
	numberOf := make(map[string]int)
	for number, each := range g.members {
		numberOf[each.id] = number
	}
	answer := make([]byte, 4*place)
	for index := range answer {
		answer[index] = 0xff
	}
	for id, byTopic := range plan.AsMemberIDMap() {
		for name, partitions := range byTopic {
			for _, partition := range partitions {
				at := 4 * (first[name] + int(partition))
				binary.BigEndian.PutUint32(answer[at:], uint32(numberOf[id]))
			}
		}
	}
	return answer
}

// threadMs is the CPU time of this thread so far.
func threadMs() float64 {
	var now syscall.Timespec
	_, _, failed := syscall.Syscall(
		syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&now)), 0)
	if failed != 0 {
		panic(failed)
	}
	return float64(now.Nano()) / 1e6
}

func balancerOf(name string) kgo.GroupBalancer {
	switch name {
	case "sticky":
		return kgo.StickyBalancer()
	case "range":
		return kgo.RangeBalancer()
	case "round-robin":
		return kgo.RoundRobinBalancer()
	}
	return nil
}

func carryOut(order []string) (string, error) {
	balancer := balancerOf(order[2])
	if balancer == nil {
		return "no such assignor", nil
	}
	g, err := readGroup(order[0])
	if err != nil {
		return "", err
	}
	if g.racks > 0 {
		return "no way to tell it of racks", nil
	}
	runs, err := strconv.Atoi(order[3])
	if err != nil {
		return "", err
	}
	limitMs, err := strconv.ParseFloat(order[4], 64)
	if err != nil {
		return "", err
	}
	counts := make(map[string]int32)
	for _, each := range g.topics {
		counts[each.name] = int32(each.partitions)
	}
	joined := g.joined(balancer)
	var plan *kgo.BalancePlan
	once := func() (float64, error) {
		members, _, err := balancer.MemberBalancer(slices.Clone(joined))
		if err != nil {
			return 0, err
		}
		runtime.GC()
		began := threadMs()
		balanced := members.(kgo.GroupMemberBalancerOrError)
		into, err := balanced.BalanceOrError(counts)
		took := threadMs() - began
		if err == nil {
			plan = into.(*kgo.BalancePlan)
		}
		return took, err
	}
	var timesMs []string
	for run := range warmUps + runs {
		tookMs, err := once()
		if err != nil {
			return "", err
		}
		if run >= warmUps || tookMs > limitMs {
			timesMs = append(timesMs, fmt.Sprintf("%.3f", tookMs))
		}
		if tookMs > limitMs {
			break
		}
	}
	return strings.Join(timesMs, " "), os.WriteFile(order[1], g.holders(plan), 0o644)
}

func main() {
	runtime.LockOSThread()
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		answer, err := carryOut(strings.Split(orders.Text(), "\t"))
		if err != nil {
			answer = "no: " + err.Error()
		}
		fmt.Println(answer)
	}
}
