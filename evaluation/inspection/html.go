package inspection

import (
	_ "embed"
	"html/template"
	"io"
	"strconv"
	"strings"

	"glimpse/model"
)

//go:embed inspect.html
var inspectSource string

var inspectPage = template.Must(template.New("inspect.html").Parse(inspectSource))

// shownToken is a token on the page.
type shownToken struct {
	Position int
	ID       int32
	Text     string
	Count    int     // heads that keep it
	Share    float64 // of all heads
}

// WriteHTML writes a page that needs no other file: the prompt, every token
// coloured by the share of heads that keep it.
func (x *Inspection) WriteHTML(w io.Writer) error {
	page := struct {
		Model, Policy, Adapter, Budget    string
		Heads, Layers, KVHeads, Somewhere int
		Tokens                            []shownToken
		Kept                              [][][]int32
	}{
		Model: x.Model.Name, Policy: x.Policy, Adapter: x.Adapter, Budget: x.Budget.Describe(len(x.IDs)),
		Layers: len(x.Session.Kept()), KVHeads: x.Model.Config.KVHeads, Kept: x.Session.Kept(),
	}
	page.Heads = page.Layers * page.KVHeads
	counts := Counts(x.Session.Kept(), len(x.IDs))
	for i, text := range Texts(x.Model, x.IDs) {
		if counts[i] > 0 {
			page.Somewhere++
		}
		page.Tokens = append(page.Tokens, shownToken{i, x.IDs[i], text, counts[i], float64(counts[i]) / float64(page.Heads)})
	}
	return inspectPage.Execute(w, page)
}

// Texts are tokens as a reader is to see them. A character of several tokens stands at the
// last of them, the others are dots; without a tokenizer the ids stand for the text.
func Texts(m *model.Model, ids []int32) []string {
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
		if out[i] == "" {
			out[i] = "·"
		}
	}
	if len(out) > 0 {
		out[len(out)-1] += stream.Flush()
	}
	return out
}
