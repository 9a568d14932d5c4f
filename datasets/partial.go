package datasets

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
)

// ErrFinished is returned for a shard that is complete.
var ErrFinished = errors.New("finished already")

// ShardName is the file of shard i, from 0, of n.
func ShardName(i, n int) string { return fmt.Sprintf("pairs-%05d-of-%05d.jsonl", i, n) }

// Finished is ErrFinished for a complete file of the header, another error for one of another.
func (r *PairReader) Finished(h PairHeader) error {
	if !r.header.Same(h) {
		return fmt.Errorf("%s: is of other settings: %s", r.lines.file, r.header.Differences(h))
	}
	return fmt.Errorf("%s: %w", r.lines.file, ErrFinished)
}

// Differences names what is not as it is wanted.
func (h PairHeader) Differences(want PairHeader) string {
	var out []string
	var compare func(name string, got, want reflect.Value)
	compare = func(name string, got, want reflect.Value) {
		if got.Kind() == reflect.Struct {
			for i := range got.NumField() {
				compare(strings.TrimPrefix(name+"."+got.Type().Field(i).Name, "."), got.Field(i), want.Field(i))
			}
		} else if !got.Equal(want) {
			out = append(out, fmt.Sprintf("%s: got %v, want %v", name, got, want))
		}
	}
	h.Device = want.Device
	compare("", reflect.ValueOf(h), reflect.ValueOf(want))
	return strings.Join(out, "; ")
}

// PartialOf is where the pairs of a file are until it is complete.
func PartialOf(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".partial")
}

// CreatePartial starts a pair file at PartialOf(path), which gets its name on Commit. Unlike that of CreatePairs
// it stays after Abort, or where the process is killed: FinishPartial gives the pairs their name that were flushed.
func CreatePartial(path string, h PairHeader) (*PairWriter, error) {
	if err := h.Validate(); err != nil {
		return nil, fmt.Errorf("create samples %s: header: %w", path, err)
	}
	f, err := os.Create(PartialOf(path))
	if err != nil {
		return nil, fmt.Errorf("create samples: %w", err)
	}
	return newPairWriter(&partialFile{f, path}, path, h)
}

// FinishPartial gives the pairs at PartialOf(path) their name, without a last line that was not written to its end. A file
// without pairs is removed.
func FinishPartial(path string) error {
	f, err := os.OpenFile(PartialOf(path), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("finish samples: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		return fmt.Errorf("finish samples: %w", err)
	}
	_, pairs, whole, err := readPartial(f.Name(), data, nil)
	if err != nil {
		return err
	}
	if len(pairs) == 0 {
		return os.Remove(f.Name())
	}
	if err := f.Truncate(whole); err != nil {
		return err
	}
	return (&partialFile{f, path}).Commit()
}

// ReadPartial reads what a file that was not finished holds, without a last line that was not written to its end. A header
// that is not of the wanted settings is an error. A file without pairs has the wanted one.
func ReadPartial(name string, data []byte, want PairHeader) (h PairHeader, pairs []Pair, err error) {
	if h, pairs, _, err = readPartial(name, data, &want); err == nil && len(pairs) == 0 {
		h = want
	}
	return h, pairs, err
}

// readPartial also returns the bytes of the lines that were written to their end. want may be nil.
func readPartial(name string, data []byte, want *PairHeader) (h PairHeader, pairs []Pair, whole int64, err error) {
	data = data[:bytes.LastIndexByte(data, '\n')+1]
	if len(data) == 0 {
		return h, nil, 0, nil
	}
	r, err := NewPairReader(name, bytes.NewReader(data))
	if err != nil {
		return h, nil, 0, err
	}
	if h = r.Header(); want != nil && !h.Same(*want) {
		return h, nil, 0, fmt.Errorf("%s: was begun with other settings: %s; remove it to begin again", name, h.Differences(*want))
	}
	if !r.check {
		return h, nil, 0, fmt.Errorf("%s: was begun without checks of its lines; remove it to begin again", name)
	}
	for {
		p, err := r.Next()
		switch {
		case err == io.EOF || errors.Is(err, ErrEmpty):
			return h, pairs, int64(len(data)), nil
		case err != nil:
			return h, nil, 0, fmt.Errorf("%w; remove the file to begin again", err)
		}
		pairs = append(pairs, p)
	}
}

// partialFile gets its name on Commit.
type partialFile struct {
	*os.File
	path string
}

func (f *partialFile) Commit() error {
	defer f.Close()
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), f.path); err != nil {
		return err
	}
	if dir, err := os.Open(filepath.Dir(f.path)); err == nil {
		dir.Sync() // not everywhere possible; the file itself is safe
		dir.Close()
	}
	return nil
}

func (f *partialFile) Abort() { f.Close() }
