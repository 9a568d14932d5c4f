package model

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// addNote adds to Notes.
func (m *Model) addNote(format string, args ...any) {
	m.Notes = append(m.Notes, fmt.Sprintf(format, args...))
}

// addNote adds to the notes of the model.
func (c *Config) addNote(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// isBuffer tells that a stored tensor is one of those that older versions of
// transformers saved beside the weights: rotary tables and causal masks, which
// config.json decides.
func isBuffer(name string, shape []int) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	switch last {
	case "inv_freq", "cos_cached", "sin_cached":
		return strings.Contains(name, "rotary_emb.")
	case "masked_bias":
		return true
	case "bias": // of attention itself: a mask [1, 1, tokens, tokens]
		return len(shape) == 4
	}
	return false
}

// tokenIDs reads one id or a list; raw is nil where no file has the key, which then has its default.
// Those that the model does not have can never be drawn: they are left out, and a note says so where a file has them.
func (c *Config) tokenIDs(file, key string, raw json.RawMessage, absent []int32) ([]int32, error) {
	if raw == nil {
		return slices.DeleteFunc(slices.Clone(absent), func(id int32) bool { return int(id) >= c.Vocab }), nil
	}
	if !given(raw) {
		return nil, nil
	}
	if raw[0] != '[' {
		raw = json.RawMessage("[" + string(raw) + "]")
	}
	var all []int64
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("%s: %s: got %.60q, want a token id or a list of them", file, key, raw)
	}
	var ids []int32
	var beyond []string
	for _, id := range all {
		if id < 0 || id >= int64(min(c.Vocab, math.MaxInt32)) {
			beyond = append(beyond, fmt.Sprint(id))
		} else {
			ids = append(ids, int32(id))
		}
	}
	switch len(beyond) {
	case 0:
	case 1:
		c.notes = append(c.notes, fmt.Sprintf("%s: %s %s is not one of the %d tokens, and ignored", file, key, beyond[0], c.Vocab))
	default:
		const most = 8
		shown := strings.Join(beyond[:min(len(beyond), most)], ", ")
		if len(beyond) > most {
			shown += fmt.Sprintf(" and %d more", len(beyond)-most)
		}
		c.notes = append(c.notes, fmt.Sprintf("%s: %s %s are not of the %d tokens, and ignored", file, key, shown, c.Vocab))
	}
	return ids, nil
}
