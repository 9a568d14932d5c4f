package evaluation

import (
	"bytes"
	"encoding/json"
	"errors"
)

// Result is what is stored of a sample: its predictions, and of the first samples what is kept of their prompts.
type Result struct {
	Lines []*Prediction
	Kept  *Kept // nil: not asked for
}

// encodeResult makes the text of a result: the lines of its predictions, and then what is kept.
func encodeResult(lines []*Prediction, kept *Kept) ([]byte, error) {
	text, err := encodeSample(lines)
	if err != nil || kept == nil {
		return text, err
	}
	line, err := json.Marshal(kept)
	return append(append(text, line...), '\n'), err
}

var keptBegins = []byte(`{"schema":`)

// ReadResult reads a text of encodeResult, and refuses one that is not whole.
func ReadResult(text []byte) (*Result, error) {
	r := new(Result)
	if at := bytes.LastIndexByte(bytes.TrimSuffix(text, []byte("\n")), '\n') + 1; bytes.HasPrefix(text[at:], keptBegins) {
		kept, err := DecodeKept(bytes.TrimSpace(text[at:]))
		if err != nil {
			return nil, err
		}
		r.Kept, text = kept, text[:at]
	}
	lines, _, damage, err := ReadPredictions(bytes.NewReader(text), nil)
	if r.Lines = lines; err == nil && len(lines) == 0 {
		err = errors.New("no prediction")
	}
	return r, errors.Join(err, damage)
}
