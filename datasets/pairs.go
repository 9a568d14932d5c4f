package datasets

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"

	"glimpse/internal/atomicfile"
	"glimpse/internal/regularfile"
)

const (
	pairFormat  = "glimpse-pairs"
	pairVersion = 1
)

// PairHeader is the first line of a pair file: where the responses come from.
type PairHeader struct {
	Model         string   `json:"model"`          // name or folder of the model that wrote the responses
	WeightsSHA256 string   `json:"weights_sha256"` // of its weights, 64 lower-case hexadecimal digits
	Sampling      Sampling `json:"sampling"`       // how it wrote them
	Seed          uint64   `json:"seed"`
	// This file is part Shard (from 0) of Shards; 0 of 1 if it is whole.
	Shard  int `json:"shard"`
	Shards int `json:"shards"`
	// Data says where the prompts come from and how they were made; "" where it is not
	// told.
	Data string `json:"data,omitempty"`
	// Contents are the contents of the prompts' files; "" where they are not recorded.
	Contents ContentsText `json:"data_sha256,omitempty"`
	// Device is what the model computed on when the file was begun, on a processor with the arithmetic; "" where it is not
	// told. Files of other devices are of the same settings.
	Device string `json:"device,omitempty"`
}

// Sampling is how a response was drawn. Temperature 0 is greedy decoding, and
// then TopP and TopK say nothing.
type Sampling struct {
	Temperature  float64 `json:"temperature"`          // at least 0
	TopP         float64 `json:"top_p"`                // above 0, at most 1; 1 keeps every token
	TopK         int     `json:"top_k"`                // 0 keeps every token
	MinP         float64 `json:"min_p,omitzero"`       // 0 to 1, a share of the largest probability; 0 keeps every token
	MaxNewTokens int     `json:"max_new_tokens"`       // at least 1
	Processors   string  `json:"processors,omitempty"` // what else changed the logits, in words; "" is nothing
}

// headerLine is the first line of a file.
type headerLine struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	PairHeader
	Check string `json:"check,omitempty"` // checkName: every pair carries a check
}

// line is the header as it stands in a file.
func (h PairHeader) line() headerLine { return headerLine{pairFormat, pairVersion, h, checkName} }

var sha256Pattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Validate returns an error that names the first field that no file may have.
func (h PairHeader) Validate() error {
	s := h.Sampling
	contents, err := ParseContents(h.Contents)
	switch {
	case err != nil || contents.JSONText() != h.Contents:
		return fmt.Errorf(`field "data_sha256": got %.200q, want a list of files with their SHA-256`, h.Contents)
	case h.Model == "":
		return errors.New(`field "model": got an empty string, want the model's name`)
	case !sha256Pattern.MatchString(h.WeightsSHA256):
		return fmt.Errorf(`field "weights_sha256": got %q, want 64 lower-case hexadecimal digits`, h.WeightsSHA256)
	case !(s.Temperature >= 0) || math.IsInf(s.Temperature, 0):
		return fmt.Errorf(`field "sampling": temperature: got %g, want at least 0`, s.Temperature)
	case !(s.TopP > 0 && s.TopP <= 1):
		return fmt.Errorf(`field "sampling": top_p: got %g, want above 0 and at most 1`, s.TopP)
	case s.TopK < 0:
		return fmt.Errorf(`field "sampling": top_k: got %d, want at least 0`, s.TopK)
	case !(s.MinP >= 0 && s.MinP <= 1):
		return fmt.Errorf(`field "sampling": min_p: got %g, want 0 to 1`, s.MinP)
	case s.MaxNewTokens < 1:
		return fmt.Errorf(`field "sampling": max_new_tokens: got %d, want at least 1`, s.MaxNewTokens)
	case h.Shards < 1:
		return fmt.Errorf(`field "shards": got %d, want at least 1`, h.Shards)
	case h.Shard < 0 || h.Shard >= h.Shards:
		return fmt.Errorf(`field "shard": got %d, want 0 to %d`, h.Shard, h.Shards-1)
	}
	return nil
}

// Pair is one prompt with the model's own response.
type Pair struct {
	ID          string  `json:"id"`
	Task        string  `json:"task,omitempty"` // empty for prompts that are not of a task
	PromptIDs   []int32 `json:"prompt_ids"`
	ResponseIDs []int32 `json:"response_ids"` // without the end token; empty if the model ended at once
}

// CheckIDs returns an error that names the first id outside 0 … vocab-1.
func (p Pair) CheckIDs(vocab int) error {
	err := checkIDs("prompt_ids", p.PromptIDs, vocab)
	if err == nil {
		err = checkIDs("response_ids", p.ResponseIDs, vocab)
	}
	if err != nil {
		return fmt.Errorf("sample %s: %w", p.ID, err)
	}
	return nil
}

func (p Pair) validate() error {
	switch {
	case p.ID == "":
		return errors.New(`field "id": got an empty string, want text`)
	case len(p.PromptIDs) == 0:
		return errors.New(`field "prompt_ids": got no ids, want at least one`)
	}
	return p.CheckIDs(math.MaxInt32)
}

// PairWriter writes a pair file, which appears under its name on Commit and not
// before.
type PairWriter struct {
	file    pairFile
	buffer  *bufio.Writer
	path    string
	part    bool // of several shards
	written int
	chain   chain
}

// pairFile is what pairs are written to.
type pairFile interface {
	io.Writer
	Commit() error
	Abort()
}

// CreatePairs starts a pair file. The caller ends it with Commit or Abort.
func CreatePairs(path string, h PairHeader) (*PairWriter, error) {
	if err := h.Validate(); err != nil {
		return nil, fmt.Errorf("create samples %s: header: %w", path, err)
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create samples: %w", err)
	}
	return newPairWriter(f, path, h)
}

func newPairWriter(f pairFile, path string, h PairHeader) (*PairWriter, error) {
	w := &PairWriter{file: f, buffer: bufio.NewWriterSize(f, 64<<10), path: path, part: h.Shards > 1}
	if err := w.writeHeader(h); err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// Write appends a pair. A pair without id or prompt, with a negative token id, or
// longer than the readers accept is an error and is not written.
func (w *PairWriter) Write(p Pair) error {
	if err := p.validate(); err != nil {
		return fmt.Errorf("write samples %s: sample %d: %w", w.path, w.written, err)
	}
	if p.ResponseIDs == nil {
		p.ResponseIDs = []int32{} // [] in the file, not null
	}
	data, err := json.Marshal(p)
	if err == nil {
		data = w.chain.addCheck(data)
	}
	if err := w.writeLine(data, err); err != nil {
		return err
	}
	w.written++
	return nil
}

func (w *PairWriter) writeHeader(h PairHeader) error {
	data, err := json.Marshal(h.line())
	w.chain = startChain(data)
	return w.writeLine(data, err)
}

func (w *PairWriter) writeLine(data []byte, err error) error {
	if err == nil && len(data)+1 >= MaxLine {
		err = fmt.Errorf("got a line of %d bytes, want less than %d", len(data)+1, MaxLine)
	}
	if err == nil {
		_, err = w.buffer.Write(append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write samples %s: sample %d: %w", w.path, w.written, err)
	}
	return nil
}

// Flush hands the pairs so far to the system.
func (w *PairWriter) Flush() error {
	if err := w.buffer.Flush(); err != nil {
		return fmt.Errorf("write samples %s: %w", w.path, err)
	}
	return nil
}

// Commit makes the file appear. A file without pairs is ErrEmpty and does not
// appear, but a shard may have none: there can be fewer prompts than shards.
func (w *PairWriter) Commit() error {
	err := w.buffer.Flush()
	if err == nil && w.written == 0 && !w.part {
		err = ErrEmpty
	}
	if err != nil {
		w.Abort()
		return fmt.Errorf("commit samples %s: %w", w.path, err)
	}
	return w.file.Commit()
}

// Abort drops the file. It does nothing after Commit, so it can be deferred.
func (w *PairWriter) Abort() { w.file.Abort() }

// PairReader streams a pair file.
type PairReader struct {
	lines  *lineReader
	header PairHeader
	read   int
	check  bool // every pair carries a check
	chain  chain
	closer io.Closer // nil if the caller owns the reader
}

// OpenPairs opens a pair file and reads its header. The caller closes it.
func OpenPairs(path string) (*PairReader, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open samples: %w", err)
	}
	r, err := NewPairReader(path, f)
	if err != nil {
		f.Close()
		return nil, err
	}
	r.closer = f
	return r, nil
}

// NewPairReader reads the header from r; file stands in its errors.
func NewPairReader(file string, r io.Reader) (*PairReader, error) {
	p := &PairReader{lines: newLineReader(file, r)}
	o, err := p.lines.nextObject()
	if err == io.EOF {
		return nil, fmt.Errorf("%s: got no lines, want a header of format %s", file, pairFormat)
	}
	if err != nil {
		return nil, err
	}
	if p.header, p.check, err = parseHeader(o); err != nil {
		return nil, p.lines.locate(fmt.Errorf("header: %w", err))
	}
	p.chain = startChain(p.lines.text)
	return p, nil
}

func parseHeader(o object) (_ PairHeader, checked bool, _ error) {
	var h headerLine
	// The format comes first: what other fields mean depends on it.
	if err := o.decode("format", fmt.Sprintf("%q", pairFormat), &h.Format); err != nil {
		return PairHeader{}, false, err
	}
	if h.Format != pairFormat {
		return PairHeader{}, false, fmt.Errorf(`field "format": got %q, want %q`, h.Format, pairFormat)
	}
	if err := o.decode("version", "a whole number", &h.Version); err != nil {
		return PairHeader{}, false, err
	}
	if h.Version != pairVersion {
		return PairHeader{}, false, fmt.Errorf(`field "version": got %d, want %d`, h.Version, pairVersion)
	}
	var sampling json.RawMessage
	var contents Contents
	err := o.decodeOnly([]field{
		{"format", "a string", &h.Format, false},
		{"version", "a whole number", &h.Version, false},
		{"model", "a string", &h.Model, false},
		{"weights_sha256", "a string", &h.WeightsSHA256, false},
		{"sampling", "an object", &sampling, false},
		{"seed", "a whole number of at least 0", &h.Seed, false},
		{"shard", "a whole number", &h.Shard, false},
		{"shards", "a whole number", &h.Shards, false},
		{"data", wantText, &h.Data, true},
		{"data_sha256", "a list of files with their SHA-256", &contents, true},
		{"device", wantText, &h.Device, true},
		{checkField, wantText, &h.Check, true},
	})
	if err != nil {
		return PairHeader{}, false, err
	}
	if err := h.Sampling.readJSON(sampling); err != nil {
		return PairHeader{}, false, fmt.Errorf(`field "sampling": %w`, err)
	}
	if h.Check != "" && h.Check != checkName {
		return PairHeader{}, false, fmt.Errorf("field %q: got %q, want %q", checkField, h.Check, checkName)
	}
	h.Contents = contents.JSONText()
	return h.PairHeader, h.Check != "", h.Validate()
}

func (s *Sampling) readJSON(raw json.RawMessage) error {
	o, err := parseObject(raw)
	if err != nil {
		return err
	}
	return o.decodeOnly([]field{
		{"temperature", "a number", &s.Temperature, false},
		{"top_p", "a number", &s.TopP, false},
		{"top_k", "a whole number", &s.TopK, false},
		{"min_p", "a number", &s.MinP, true},
		{"max_new_tokens", "a whole number", &s.MaxNewTokens, false},
		{"processors", wantText, &s.Processors, true},
	})
}

// Header returns the file's header.
func (r *PairReader) Header() PairHeader { return r.header }

// Next returns the next pair, or io.EOF after the last; a file without pairs that is no shard is
// ErrEmpty instead.
func (r *PairReader) Next() (Pair, error) {
	o, err := r.lines.nextObject()
	if err == io.EOF && r.read == 0 && r.header.Shards == 1 {
		return Pair{}, fmt.Errorf("%s: %w", r.lines.file, ErrEmpty)
	}
	if err != nil {
		return Pair{}, err
	}
	if r.check {
		if err := r.chain.verify(r.lines.text); err != nil {
			return Pair{}, r.lines.locate(err)
		}
		delete(o, checkField)
	}
	var p Pair
	err = o.decodeOnly([]field{
		{"id", wantText, &p.ID, false},
		{"task", wantText, &p.Task, true},
		{"prompt_ids", "", &p.PromptIDs, false},
		{"response_ids", "", &p.ResponseIDs, false},
	})
	if err == nil {
		err = p.validate()
	}
	if err != nil {
		return Pair{}, r.lines.locate(err)
	}
	r.read++
	return p, nil
}

// Close closes the file that OpenPairs opened.
func (r *PairReader) Close() error {
	if r.closer == nil {
		return nil
	}
	return r.closer.Close()
}

// ReadPairs reads a whole pair file. OpenPairs streams it.
func ReadPairs(path string) (h PairHeader, pairs []Pair, err error) {
	r, err := OpenPairs(path)
	if err != nil {
		return h, nil, err
	}
	defer r.Close()
	for {
		p, err := r.Next()
		if err == io.EOF {
			return r.Header(), pairs, nil
		}
		if err != nil {
			return r.Header(), nil, err
		}
		pairs = append(pairs, p)
	}
}
