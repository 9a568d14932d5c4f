package tbevents

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// TestRecords reads a file back with a decoder of its own. lab/peers/check_tensorboard.py
// does the same with the real package.
func TestRecords(t *testing.T) {
	dir := t.TempDir()
	w, err := create(dir, 3, func() time.Time { return time.Unix(7, 5e8) })
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(4, []Scalar{{"loss/a", 0.25}, {"loss/b", -3}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	names, _ := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	if len(names) != 1 {
		t.Fatalf("files %v", names)
	}
	data, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	var events []map[protowire.Number]any
	for len(data) > 0 {
		n := binary.LittleEndian.Uint64(data)
		if got := binary.LittleEndian.Uint32(data[8:]); got != masked(data[:8]) {
			t.Fatalf("checksum of the length: got %x", got)
		}
		body := data[12 : 12+n]
		if got := binary.LittleEndian.Uint32(data[12+n:]); got != masked(body) {
			t.Fatalf("checksum of the record: got %x", got)
		}
		events = append(events, fields(t, body))
		data = data[16+n:]
	}
	if len(events) != 3 || string(events[0][3].([]byte)) != "brain.Event:2" {
		t.Fatalf("events %v", events)
	}
	if events[1][2] != uint64(3) || events[1][7] == nil {
		t.Errorf("no session start at step 3: %v", events[1])
	}
	if events[2][1] != math.Float64bits(7.5) || events[2][2] != uint64(4) {
		t.Errorf("time and step: %v", events[2])
	}
	// The last of two repeated values wins in a map.
	value := fields(t, fields(t, events[2][5].([]byte))[1].([]byte))
	if string(value[1].([]byte)) != "loss/b" || value[2] != math.Float32bits(-3) {
		t.Errorf("value %v", value)
	}
	if masked([]byte("123456789")) != func() uint32 { c := uint32(0xe3069283); return (c>>15 | c<<17) + 0xa282ead8 }() {
		t.Error("masked is not of CRC-32C, whose check value is e3069283")
	}
}

func fields(t *testing.T, data []byte) map[protowire.Number]any {
	t.Helper()
	out := make(map[protowire.Number]any)
	for len(data) > 0 {
		num, typ, n := protowire.ConsumeTag(data)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		data = data[n:]
		switch typ {
		case protowire.VarintType:
			v, k := protowire.ConsumeVarint(data)
			out[num], n = v, k
		case protowire.Fixed32Type:
			v, k := protowire.ConsumeFixed32(data)
			out[num], n = v, k
		case protowire.Fixed64Type:
			v, k := protowire.ConsumeFixed64(data)
			out[num], n = v, k
		default:
			v, k := protowire.ConsumeBytes(data)
			out[num], n = v, k
		}
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		data = data[n:]
	}
	return out
}
