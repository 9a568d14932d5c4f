package report

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
)

//go:embed page.html
var pageSource string

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

var page = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"tabs": func(class string, t []Tab) tabSet { return tabSet{class, t} },
	"wide": func(v float64) string { return fmt.Sprintf("%.1f", 0.72*v+3) }, // of a bar in a table
}).Parse(pageSource))

// tabSet is tabs with the class of their content.
type tabSet struct {
	Class string
	Tabs  []Tab
}

// WriteHTML writes a page that needs no other file.
func (r *Report) WriteHTML(w io.Writer) error {
	sum := sha256.Sum256([]byte(pageScript))
	return page.Execute(w, struct {
		*Report
		Style  template.CSS
		Script template.JS
		Policy string
	}{
		r, template.CSS(pageStyle), template.JS(pageScript),
		// No network, no plug-ins, and of scripts the page's own alone.
		fmt.Sprintf("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-%s'; base-uri 'none'; form-action 'none'", base64.StdEncoding.EncodeToString(sum[:])),
	})
}
