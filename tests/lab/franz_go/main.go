// The worker of a trial with franz-go: what tests/lab/worker.py does, which explains it.
//
// Three settings differ from the other clients. Rebalances wait while the loop has records
// (BlockRebalanceOnPoll), because the other clients call back from their poll, too. A fetch waits up
// to 5 s for a record, franz-go's default; the others wait 0.5 s. A poll returns all records that
// have arrived, and the log has each of them a moment later.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const pollTime = 50 * time.Millisecond

type spec struct {
	Name               string            `json:"name"`
	GroupID            string            `json:"group_id"`
	Topics             []string          `json:"topics"`
	PartitionsPerTopic int               `json:"partitions_per_topic"`
	LogPath            string            `json:"log_path"`
	ClientConfig       map[string]string `json:"client_config"`
	CommitIntervalMs   int64             `json:"commit_interval_ms"`
	ExtraConfig        map[string]any    `json:"extra_config"`
}

type fields map[string]any

// The callbacks run on another goroutine, but never between a poll and AllowRebalance. So the maps
// need no lock.
type worker struct {
	spec      spec
	rows      *rowLog
	events    *os.File
	client    *kgo.Client
	positions map[int]int64
	spells    map[int]int
}

func main() {
	input := bufio.NewReader(os.Stdin)
	line, err := input.ReadBytes('\n')
	check(err)
	w := &worker{positions: map[int]int64{}, spells: map[int]int{}}
	check(json.Unmarshal(line, &w.spec))
	// Both signals close: franz-go cannot hand over.
	closing, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGUSR1)
	defer stop()
	w.rows = newRowLog(w.spec.LogPath + ".records")
	w.events, err = os.OpenFile(w.spec.LogPath+".events", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	check(err)
	w.write("ready", fields{})
	if line, _ := input.ReadString('\n'); strings.TrimSpace(line) != "go" {
		return
	}
	go func() { // a worker must not survive its controller
		_, _ = io.Copy(io.Discard, input)
		stop()
	}()
	w.run(closing)
}

func (w *worker) run(closing context.Context) {
	var err error
	w.client, err = kgo.NewClient(w.options()...)
	check(err)
	w.write("started", fields{})
	interval := time.Duration(w.spec.CommitIntervalMs) * time.Millisecond
	nextCommit := time.Now().Add(interval)
	for closing.Err() == nil {
		waiting, cancel := context.WithTimeout(context.Background(), pollTime)
		fetches := w.client.PollFetches(waiting)
		cancel()
		fetches.EachError(func(_ string, _ int32, err error) {
			if !errors.Is(err, context.DeadlineExceeded) {
				w.write("consumer_error", fields{"error": err.Error()})
			}
		})
		fetches.EachRecord(w.writeDown)
		if interval > 0 && !time.Now().Before(nextCommit) {
			w.commit(slices.Collect(maps.Keys(w.positions)))
			nextCommit = time.Now().Add(interval)
		}
		w.client.AllowRebalance()
	}
	w.write("closing", fields{})
	w.client.Close()
	w.write("closed", fields{})
}

func (w *worker) options() []kgo.Opt {
	for name := range w.spec.ClientConfig {
		if name != "bootstrap.servers" {
			check(fmt.Errorf("this worker does not translate the setting %s", name))
		}
	}
	if len(w.spec.ExtraConfig) > 0 {
		check(errors.New("this worker has no further settings"))
	}
	return []kgo.Opt{
		kgo.SeedBrokers(strings.Split(w.spec.ClientConfig["bootstrap.servers"], ",")...),
		kgo.ClientID(w.spec.Name),
		kgo.ConsumerGroup(w.spec.GroupID),
		kgo.ConsumeTopics(w.spec.Topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.ServerSideBalancer(), // KIP-848: the broker sets the time-outs of these groups
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(w.onAssigned),
		kgo.OnPartitionsRevoked(w.onRevoked),
		kgo.OnPartitionsLost(w.onLost),
	}
}

func (w *worker) writeDown(record *kgo.Record) {
	at := monotonicNs()
	var produced int64
	if len(record.Value) >= 8 {
		produced = int64(binary.LittleEndian.Uint64(record.Value))
	}
	partition := w.number(record.Topic, record.Partition)
	w.rows.append(at, produced, record.Offset, partition, w.spells[partition])
	w.positions[partition] = record.Offset + 1
}

func (w *worker) commit(partitions []int) {
	slices.Sort(partitions)
	offsets := map[string]map[int32]kgo.EpochOffset{}
	written := [][2]int64{}
	for _, partition := range partitions {
		position, ok := w.positions[partition]
		if !ok {
			continue
		}
		topic := w.spec.Topics[partition/w.spec.PartitionsPerTopic]
		if offsets[topic] == nil {
			offsets[topic] = map[int32]kgo.EpochOffset{}
		}
		number := int32(partition % w.spec.PartitionsPerTopic)
		offsets[topic][number] = kgo.EpochOffset{Epoch: -1, Offset: position}
		written = append(written, [2]int64{int64(partition), position})
	}
	if len(written) == 0 {
		return
	}
	began := time.Now()
	outcome, reason := "committed", any(nil)
	fail := func(err error) {
		if err != nil {
			outcome, reason = "commit_failed", err.Error()
		}
	}
	w.client.CommitOffsetsSync(context.Background(), offsets,
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
			if err != nil {
				fail(err)
				return
			}
			for _, topic := range answer.Topics {
				for _, partition := range topic.Partitions {
					fail(kerr.ErrorForCode(partition.ErrorCode))
				}
			}
		})
	took := math.Round(float64(time.Since(began).Microseconds())/100) / 10
	w.write(outcome, fields{"took_ms": took, "positions": written, "reason": reason})
}

// franz-go calls back after each change of the group, also if this member has no change.

func (w *worker) onAssigned(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	numbers := w.numbers(partitions)
	if len(numbers) == 0 {
		return
	}
	for _, number := range numbers {
		w.spells[number]++
		delete(w.positions, number) // later owners have committed new positions
	}
	w.write("assigned", fields{"partitions": numbers})
}

func (w *worker) onRevoked(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	numbers := w.numbers(partitions)
	if len(numbers) == 0 {
		return
	}
	w.write("revoking", fields{"partitions": numbers})
	w.commit(numbers)
	w.forget(numbers)
	w.write("revoked", fields{"partitions": numbers})
}

func (w *worker) onLost(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	numbers := w.numbers(partitions)
	w.forget(numbers)
	w.write("lost", fields{"partitions": numbers})
}

func (w *worker) forget(numbers []int) {
	for _, number := range numbers {
		delete(w.positions, number)
	}
}

func (w *worker) number(topic string, partition int32) int {
	return slices.Index(w.spec.Topics, topic)*w.spec.PartitionsPerTopic + int(partition)
}

func (w *worker) numbers(partitions map[string][]int32) []int {
	numbers := []int{}
	for topic, some := range partitions {
		for _, partition := range some {
			numbers = append(numbers, w.number(topic, partition))
		}
	}
	slices.Sort(numbers)
	return numbers
}

func (w *worker) write(name string, values fields) {
	line, err := json.Marshal(fields{"at_ns": monotonicNs(), "name": name, "fields": values})
	check(err)
	_, err = w.events.Write(append(line, '\n'))
	check(err)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
