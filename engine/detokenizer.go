package engine

import (
	"bytes"

	"glimpse/model"
	"glimpse/model/runner"
	"glimpse/model/tokenizer"
)

// detokenizer turns tokens into the text of an answer and ends it at a stop text.
type detokenizer struct {
	stream  *tokenizer.Stream // nil without a tokenizer
	text    []byte
	stop    []string
	skip    bool // stop texts at the beginning
	stopped int  // where in text a stop text begins, -1 before
	told    int  // bytes of text that more has returned
}

func newDetokenizer(m *model.Model, stop []string, skipLeading bool, keep ...int32) *detokenizer {
	d := &detokenizer{stop: stop, skip: skipLeading, stopped: -1}
	if m.Tokenizer != nil {
		d.stream = m.Tokenizer.NewStream(true, keep...)
	}
	return d
}

// StopAt is a GenerateOptions.OnToken that ends a response at a stop text, as a [Request] does.
func StopAt(m *model.Model, stop []string, skipLeading bool) func(id int32) error {
	return newDetokenizer(m, stop, skipLeading).pushToken
}

func (d *detokenizer) pushToken(id int32) error {
	if d.stream == nil {
		return nil
	}
	from := len(d.text)
	d.text = append(d.text, d.stream.Push(id)...)
	for _, s := range d.stop {
		if s == "" {
			continue
		}
		start := max(d.leading(), from-len(s)+1) // it may have begun in what came before
		if at := bytes.Index(d.text[start:], []byte(s)); at >= 0 && (d.stopped < 0 || start+at < d.stopped) {
			d.stopped = start + at
		}
	}
	if d.stopped >= 0 {
		return runner.ErrStop
	}
	return nil
}

// stopText is the one of the stop texts that has ended the answer, of several that begin there the longest; "" where none has.
func (d *detokenizer) stopText() (found string) {
	for _, s := range d.stop {
		if d.stopped >= 0 && len(s) > len(found) && bytes.HasPrefix(d.text[d.stopped:], []byte(s)) {
			found = s
		}
	}
	return found
}

// leading is the length of the stop texts at the beginning that do not end the answer.
func (d *detokenizer) leading() int {
	n := 0
	for more := d.skip; more; {
		more = false
		for _, s := range d.stop {
			if s != "" && bytes.HasPrefix(d.text[n:], []byte(s)) {
				n, more = n+len(s), true
			}
		}
	}
	return n
}

// said is the text up to a stop text; with end all that there will be.
func (d *detokenizer) said(end bool) string { return string(d.upTo(end)) }

// more is the text that has come since the last call, up to where a stop text may have begun.
func (d *detokenizer) more(end bool) string {
	text := d.upTo(end)
	if !end && d.stopped < 0 {
		text = text[:len(text)-d.pending()]
	}
	more := string(text[min(d.told, len(text)):])
	d.told += len(more)
	return more
}

// pending is the length of the longest end of the text that a stop text begins with.
func (d *detokenizer) pending() (n int) {
	for _, s := range d.stop {
		for k := min(len(s), len(d.text)); k > n; k-- {
			if bytes.HasSuffix(d.text, []byte(s[:k])) {
				n = k
			}
		}
	}
	return n
}

func (d *detokenizer) upTo(end bool) []byte {
	if d.stopped >= 0 {
		return d.text[:d.stopped]
	}
	if end && d.stream != nil {
		d.text, d.stream = append(d.text, d.stream.Flush()...), nil
	}
	return d.text
}
