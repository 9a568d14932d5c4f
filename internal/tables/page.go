package tables

import (
	"io"
	"strings"

	"glimpse/internal/printable"
)

// Page is text with headings, which are bold on a terminal that has colours. It is written
// when Flush is called, and at headings; the first error stays.
type Page struct {
	w    io.Writer
	text strings.Builder // since the last heading
	err  error
}

// NewPage returns an empty page for w.
func NewPage(w io.Writer) *Page { return &Page{w: w} }

// Write implements io.Writer. It has no errors: Flush has.
func (p *Page) Write(text []byte) (int, error) { return p.text.Write(text) }

// WriteString implements io.StringWriter.
func (p *Page) WriteString(text string) (int, error) { return p.text.WriteString(text) }

// Heading adds a heading, which ends its line itself.
func (p *Page) Heading(text string) {
	if p.Flush() == nil {
		p.err = printable.Heading(p.w, text)
	}
}

// WriteHeading is Heading for whoever knows an io.Writer only.
func (p *Page) WriteHeading(text string) error {
	p.Heading(text)
	return p.err
}

// Flush writes what was added, and returns the first error of all.
func (p *Page) Flush() error {
	if p.err == nil && p.text.Len() > 0 {
		_, p.err = io.WriteString(p.w, p.text.String())
	}
	p.text.Reset()
	return p.err
}
