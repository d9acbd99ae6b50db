package main

import (
	"encoding/binary"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

const (
	rowBytes       = 32
	chunkBytes     = (1 << 18) * rowBytes
	clockMonotonic = 1
)

// rowLog is a log of records, as tests/lab/recording.py defines it.
type rowLog struct {
	file  *os.File
	size  int64
	chunk []byte
	start int
}

func newRowLog(path string) *rowLog {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	check(err)
	rows := &rowLog{file: file}
	rows.grow()
	return rows
}

func (r *rowLog) append(at, produced, offset int64, partition, spell int) {
	if r.start == len(r.chunk) {
		check(syscall.Munmap(r.chunk))
		r.grow()
	}
	row := r.chunk[r.start : r.start+rowBytes]
	binary.LittleEndian.PutUint64(row[8:], uint64(produced))
	binary.LittleEndian.PutUint64(row[16:], uint64(offset))
	binary.LittleEndian.PutUint32(row[24:], uint32(partition))
	binary.LittleEndian.PutUint32(row[28:], uint32(spell))
	// A reader takes a row with a moment for complete, so the moment comes last.
	atomic.StoreInt64((*int64)(unsafe.Pointer(&row[0])), at)
	r.start += rowBytes
}

func (r *rowLog) grow() {
	check(r.file.Truncate(r.size + chunkBytes))
	chunk, err := syscall.Mmap(int(r.file.Fd()), r.size, chunkBytes,
		syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	check(err)
	r.chunk, r.start = chunk, 0
	r.size += chunkBytes
}

// monotonicNs returns the clock that all processes of a trial share. Go's own monotonic time counts
// from the start of the process.
func monotonicNs() int64 {
	var now syscall.Timespec
	_, _, failure := syscall.Syscall(
		syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	if failure != 0 {
		check(failure)
	}
	return now.Nano()
}
