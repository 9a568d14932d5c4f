package inspection

import (
	_ "embed"
	"html/template"
	"io"

	"glimpse/eviction"
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
		Model, Policy, Adapter, Budget string
		Heads, Layers, Somewhere       int
		Tokens                         []shownToken
		Kept                           [][][]int32
	}{
		Model: x.Model.Name, Policy: x.Policy, Adapter: x.Adapter, Budget: x.Budget.Describe(len(x.IDs)),
		Layers: len(x.kept()), Kept: x.kept(),
	}
	page.Heads = x.Session.Cache.Heads()
	counts := eviction.KeptCounts(x.kept(), len(x.IDs))
	for i, text := range x.Model.Texts(x.IDs) {
		if counts[i] > 0 {
			page.Somewhere++
		}
		page.Tokens = append(page.Tokens, shownToken{i, x.IDs[i], text, counts[i], float64(counts[i]) / float64(page.Heads)})
	}
	return inspectPage.Execute(w, page)
}
