package engine

import (
	"bytes"

	"glimpse/model"
	"glimpse/model/tokenizer"
)

// listener turns tokens into the text of an answer and ends it at a stop text.
type listener struct {
	stream  *tokenizer.Stream // nil without a tokenizer
	text    []byte
	stop    []string
	skip    bool // stop texts at the beginning
	stopped int  // where in text a stop text begins, -1 before
}

func newListener(m *model.Model, stop []string, skipLeading bool) *listener {
	l := &listener{stop: stop, skip: skipLeading, stopped: -1}
	if m.Tokenizer != nil {
		l.stream = m.Tokenizer.NewStream(true)
	}
	return l
}

// StopAt is a GenerateOptions.OnToken that ends a response at a stop text, as a [Request] does.
func StopAt(m *model.Model, stop []string, skipLeading bool) func(id int32) error {
	return newListener(m, stop, skipLeading).hear
}

func (l *listener) hear(id int32) error {
	if l.stream == nil {
		return nil
	}
	from := len(l.text)
	l.text = append(l.text, l.stream.Push(id)...)
	for _, s := range l.stop {
		if s == "" {
			continue
		}
		start := max(l.leading(), from-len(s)+1) // it may have begun in what came before
		if at := bytes.Index(l.text[start:], []byte(s)); at >= 0 && (l.stopped < 0 || start+at < l.stopped) {
			l.stopped = start + at
		}
	}
	if l.stopped >= 0 {
		return model.ErrStop
	}
	return nil
}

// leading is the length of the stop texts at the beginning that do not end the answer.
func (l *listener) leading() int {
	n := 0
	for more := l.skip; more; {
		more = false
		for _, s := range l.stop {
			if s != "" && bytes.HasPrefix(l.text[n:], []byte(s)) {
				n, more = n+len(s), true
			}
		}
	}
	return n
}

// said is the text up to a stop text; with end all that there will be.
func (l *listener) said(end bool) string {
	if l.stopped >= 0 {
		return string(l.text[:l.stopped])
	}
	if end && l.stream != nil {
		l.text, l.stream = append(l.text, l.stream.Flush()...), nil
	}
	return string(l.text)
}
