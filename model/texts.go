package model

import (
	"cmp"
	"strconv"
	"strings"
)

// Texts are tokens as a reader is to see them. A character of several tokens stands at the
// last of them, the others are dots; without a tokenizer the ids stand for the text.
func (m *Model) Texts(ids []int32) []string {
	out := make([]string, len(ids))
	t, err := m.NeedTokenizer()
	if err != nil {
		for i, id := range ids {
			out[i] = strconv.Itoa(int(id)) + " "
		}
		return out
	}
	stream := t.NewStream(false)
	for i, id := range ids {
		out[i] = strings.ReplaceAll(stream.Push(id), "\n", "↵\n")
		out[i] = cmp.Or(out[i], "·")
	}
	if len(out) > 0 {
		out[len(out)-1] += stream.Flush()
	}
	return out
}
