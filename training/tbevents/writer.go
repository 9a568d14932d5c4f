// Package tbevents writes scalars as TensorBoard event files.
//
// An event file is a sequence of TFRecords: an 8-byte little-endian length, the
// masked CRC-32C of those bytes, the record, and the masked CRC-32C of the record.
// Records are protocol buffer messages of tensorflow.Event; only the few fields that
// scalars need are written, with protowire, so that neither TensorFlow's schemas nor
// its Go bindings are needed. There is no well-kept Go writer of the format.
package tbevents

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Scalar is one value of one curve.
type Scalar struct {
	Tag   string // "loss/lookaheadkv"; the part before the slash groups curves
	Value float64
}

// Writer appends events to one file. Every Write reaches the file before it
// returns, so that a killed run leaves the curves of all its steps.
type Writer struct {
	file *os.File
	now  func() time.Time
}

// Create starts an event file in dir, which must exist. With a start step above 0
// TensorBoard drops what earlier files of the folder say of that step and later ones:
// they are of a run that was killed and goes on from a checkpoint.
func Create(dir string, start int64) (*Writer, error) {
	return create(dir, start, time.Now)
}

func create(dir string, start int64, now func() time.Time) (*Writer, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	// The name's order is the order in which TensorBoard reads the files.
	at := now()
	name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d.%d", at.Unix(), filepath.Base(host), os.Getpid(), at.Nanosecond())
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fmt.Errorf("TensorBoard events: %w", err)
	}
	w := &Writer{f, now}
	version := protowire.AppendTag(nil, 3, protowire.BytesType) // Event.file_version
	version = protowire.AppendString(version, "brain.Event:2")
	err = w.event(0, version)
	if err == nil && start > 0 {
		session := protowire.AppendTag(nil, 1, protowire.VarintType) // SessionLog.status
		session = protowire.AppendVarint(session, 1)                 // START
		log := protowire.AppendTag(nil, 7, protowire.BytesType)      // Event.session_log
		err = w.event(start, protowire.AppendBytes(log, session))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return w, nil
}

// Write adds the scalars of a step. Values are stored as float32.
func (w *Writer) Write(step int64, scalars []Scalar) error {
	var summary []byte
	for _, s := range scalars {
		v := protowire.AppendTag(nil, 1, protowire.BytesType) // Summary.Value.tag
		v = protowire.AppendString(v, s.Tag)
		v = protowire.AppendTag(v, 2, protowire.Fixed32Type) // Summary.Value.simple_value
		v = protowire.AppendFixed32(v, math.Float32bits(float32(s.Value)))
		summary = protowire.AppendTag(summary, 1, protowire.BytesType) // Summary.value
		summary = protowire.AppendBytes(summary, v)
	}
	e := protowire.AppendTag(nil, 5, protowire.BytesType) // Event.summary
	return w.event(step, protowire.AppendBytes(e, summary))
}

// event writes one record: wall_time, step and what the event is.
func (w *Writer) event(step int64, what []byte) error {
	e := protowire.AppendTag(nil, 1, protowire.Fixed64Type)
	e = protowire.AppendFixed64(e, math.Float64bits(float64(w.now().UnixNano())/1e9))
	e = protowire.AppendTag(e, 2, protowire.VarintType)
	e = protowire.AppendVarint(e, uint64(step))
	e = append(e, what...)
	record := binary.LittleEndian.AppendUint64(nil, uint64(len(e)))
	record = binary.LittleEndian.AppendUint32(record, masked(record))
	record = append(record, e...)
	record = binary.LittleEndian.AppendUint32(record, masked(e))
	if _, err := w.file.Write(record); err != nil {
		return fmt.Errorf("TensorBoard events: %w", err)
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked is the CRC of TFRecords, rotated and shifted because a CRC of data that
// contains CRCs is weak.
func masked(data []byte) uint32 {
	c := crc32.Checksum(data, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// Close ends the file.
func (w *Writer) Close() error { return w.file.Close() }
