package datasets

import (
	"bufio"
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

// Shard is a pair file that is written pair by pair, and gone on with.
type Shard struct {
	*PairWriter
	file *shardFile
}

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

// ResumePairs goes on with a pair file whose writing was interrupted, or starts it where nothing
// is there yet. A file that is complete is ErrFinished. The caller keeps others away from it.
func ResumePairs(path string, h PairHeader) (*Shard, error) {
	if err := h.Validate(); err != nil {
		return nil, fmt.Errorf("resume samples %s: header: %w", path, err)
	}
	switch r, err := OpenPairs(path); {
	case err == nil:
		defer r.Close()
		return nil, r.Finished(h)
	case !errors.Is(err, os.ErrNotExist):
		return nil, err
	}
	return openPartial(path, h)
}

// StartPairs starts a pair file that takes the place of one of that name when it is complete.
// Unlike that of CreatePairs, ResumePairs goes on with it after an interruption.
func StartPairs(path string, h PairHeader) (*Shard, error) {
	if err := h.Validate(); err != nil {
		return nil, fmt.Errorf("start samples %s: header: %w", path, err)
	}
	if err := os.Remove(PartialOf(path)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("start samples: %w", err)
	}
	return openPartial(path, h)
}

func openPartial(path string, h PairHeader) (*Shard, error) {
	partial := PartialOf(path)
	f, err := os.OpenFile(partial, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("open shard: %w", err)
	}
	s := &Shard{file: &shardFile{File: f, path: path}}
	s.PairWriter = &PairWriter{file: s.file, buffer: bufio.NewWriterSize(s.file, 64<<10), path: path, part: h.Shards > 1}
	if err := s.takeUp(partial, h); err != nil {
		f.Close()
		return nil, err
	}
	return s, nil
}

// takeUp reads what is there, cuts off a last line that was not finished, and writes
// the header where there is none.
func (s *Shard) takeUp(partial string, h PairHeader) error {
	data, err := io.ReadAll(s.file)
	if err != nil {
		return fmt.Errorf("%s: %w", partial, err)
	}
	data = data[:bytes.LastIndexByte(data, '\n')+1]
	if err := s.file.Truncate(int64(len(data))); err != nil {
		return fmt.Errorf("%s: %w", partial, err)
	}
	if _, err := s.file.Seek(int64(len(data)), io.SeekStart); err != nil {
		return fmt.Errorf("%s: %w", partial, err)
	}
	if len(data) == 0 {
		if err := s.writeHeader(h); err != nil {
			return err
		}
		return s.buffer.Flush()
	}
	r, pairs, err := ReadBegun(partial, data, h)
	if err != nil {
		return err
	}
	s.chain, s.written = r.chain, len(pairs)
	return nil
}

// ReadBegun reads the pairs of a file whose writing was interrupted, without a last line that was cut. The file must be
// of the settings of h.
func ReadBegun(name string, data []byte, h PairHeader) (r *PairReader, pairs []Pair, err error) {
	if r, err = NewPairReader(name, bytes.NewReader(data[:bytes.LastIndexByte(data, '\n')+1])); err != nil {
		return nil, nil, err
	}
	if got := r.Header(); !got.Same(h) {
		return nil, nil, fmt.Errorf("%s: was begun with other settings: %s; remove it to begin again", name, got.Differences(h))
	}
	for {
		p, err := r.Next()
		switch {
		case (err == io.EOF || errors.Is(err, ErrEmpty)) && !r.check:
			return nil, nil, fmt.Errorf("%s: was begun without checks of its lines; remove it to begin again", name)
		case err == io.EOF || errors.Is(err, ErrEmpty):
			return r, pairs, nil
		case err != nil:
			return nil, nil, fmt.Errorf("%w; remove the file to begin the shard again", err)
		}
		pairs = append(pairs, p)
	}
}

// Write appends a pair, which is in the file when it returns.
func (s *Shard) Write(p Pair) error {
	if err := s.PairWriter.Write(p); err != nil {
		return err
	}
	if err := s.buffer.Flush(); err != nil {
		return fmt.Errorf("write samples %s: %w", s.path, err)
	}
	return nil
}

// Release lets go of a shard that is not finished; what is written stays. It does
// nothing after Commit.
func (s *Shard) Release() { s.file.Abort() }

// Discard drops the pairs that were written, too.
func (s *Shard) Discard() {
	s.Release()
	os.Remove(s.file.Name())
}

// Written is the number of pairs that are there, from earlier runs, too.
func (s *Shard) Written() int { return s.written }

// shardFile gets its name on Commit.
type shardFile struct {
	*os.File
	path   string
	closed bool
}

func (f *shardFile) Commit() error {
	defer f.Abort()
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

func (f *shardFile) Abort() {
	if !f.closed {
		f.closed = true
		f.Close()
	}
}
