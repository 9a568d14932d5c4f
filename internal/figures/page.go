package figures

import (
	"cmp"
	"fmt"
	"html"
	"image/color"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Inline is a drawing as an svg element for a page of HTML, about being its text for those who
// cannot see it. An [Ink] is the page's variable of its name, black the page's own colour of text. A
// series is a g of class "series" with its name, marks are circles, cells and bars rect, and their
// tips attributes of them: data-name, data-tip. All text is escaped. A point is 1.25 of the page's
// pixels.
func Inline(width, height vg.Length, about string, drawOn func(draw.Canvas)) string {
	c := &page{height: height}
	vg.Initialize(c)
	drawOn(draw.NewCanvas(c, width, height))
	return fmt.Sprintf(`<svg viewBox="0 0 %s %s" width="%s" height="%s" font-size="%d" role="img" aria-label="%s">%s</svg>`,
		short(width), short(height), short(1.25*width), short(1.25*height), pageFont, html.EscapeString(about), &c.out)
}

// pageFont is the size of text that does not name one.
const pageFont = 9

// page is the canvas of Inline. It turns, but does not move or scale: no figure does.
type page struct {
	vg.Canvas // for what no figure calls

	height vg.Length
	out    strings.Builder
	pen    pen
	saved  []pen
	tip    string // of the next shape
}

type pen struct {
	color  color.Color
	width  vg.Length
	dashes []vg.Length
	turned float64 // radians, against the clock
}

// pageOf is the page that is drawn on, nil in pictures. A plot wraps its canvas for what it draws.
func pageOf(c draw.Canvas) *page {
	for {
		switch inner := c.Canvas.(type) {
		case draw.Canvas:
			c = inner
		case *page:
			return inner
		default:
			return nil
		}
	}
}

// setTip gives the next shape a tip, on a page.
func setTip(c draw.Canvas, tip string) {
	if p := pageOf(c); p != nil {
		p.tip = tip
	}
}

func (c *page) beginPath(s *Series) {
	class := "series"
	if ink, ok := s.Line.Color.(Ink); ok {
		class += " " + ink.Name
	}
	fmt.Fprintf(&c.out, `<g class="%s" data-name="%s">`, class, html.EscapeString(s.Name))
}

func (c *page) closePath() { c.out.WriteString("</g>\n") }

func (c *page) SetLineWidth(w vg.Length)               { c.pen.width = w }
func (c *page) SetLineDash(d []vg.Length, _ vg.Length) { c.pen.dashes = d }
func (c *page) SetColor(ink color.Color)               { c.pen.color = cmp.Or(ink, color.Color(color.Black)) }
func (c *page) Rotate(radians float64)                 { c.pen.turned += radians }
func (c *page) Push()                                  { c.saved = append(c.saved, c.pen) }
func (c *page) Pop()                                   { c.pen, c.saved = c.saved[len(c.saved)-1], c.saved[:len(c.saved)-1] }
func (c *page) Fill(p vg.Path)                         { c.shape(p, c.paint("fill")) }

func (c *page) Stroke(p vg.Path) {
	if c.pen.width <= 0 || len(p) < 2 || len(p) == 2 && p[0].Pos == p[1].Pos {
		return
	}
	style := c.paint("stroke") + ` stroke-width="` + short(c.pen.width) + `"`
	for i, d := range c.pen.dashes {
		style += []string{` stroke-dasharray="`, " "}[min(i, 1)] + short(d)
	}
	if len(c.pen.dashes) > 0 {
		style += `"`
	}
	c.shape(p, style)
}

// paint is an attribute of the current colour.
func (c *page) paint(what string) string {
	ink, ok := c.pen.color.(Ink)
	switch r, g, b, _ := c.pen.color.RGBA(); {
	case ok:
		return fmt.Sprintf(` %s="var(--%s)"`, what, ink.Name)
	case r+g+b == 0:
		return fmt.Sprintf(` %s="currentColor"`, what)
	default:
		return fmt.Sprintf(` %s="#%02x%02x%02x"`, what, r>>8, g>>8, b>>8)
	}
}

// pagePoint is where a point is, from the upper left corner.
func (c *page) pagePoint(p vg.Point) (x, y vg.Length) {
	sin, cos := math.Sincos(c.pen.turned)
	return p.X*vg.Length(cos) - p.Y*vg.Length(sin), c.height - p.X*vg.Length(sin) - p.Y*vg.Length(cos)
}

// shape writes a path as a rect, a circle (the only arcs that marks have) or a path.
func (c *page) shape(p vg.Path, style string) {
	if c.tip != "" {
		style += ` data-tip="` + html.EscapeString(c.tip) + `"`
		c.tip = ""
	}
	if len(p) == 5 && p[4].Type == vg.CloseComp && p[0].Pos.Y == p[1].Pos.Y && p[1].Pos.X == p[2].Pos.X && p[2].Pos.Y == p[3].Pos.Y {
		x, y := c.pagePoint(p[3].Pos)
		fmt.Fprintf(&c.out, `<rect x="%s" y="%s" width="%s" height="%s"%s/>`, short(x), short(y), short(p[1].Pos.X-p[0].Pos.X), short(p[2].Pos.Y-p[1].Pos.Y), style)
		return
	}
	var d strings.Builder
	for _, part := range p {
		x, y := c.pagePoint(part.Pos)
		switch part.Type {
		case vg.ArcComp:
			fmt.Fprintf(&c.out, `<circle cx="%s" cy="%s" r="%s"%s/>`, short(x), short(y), short(part.Radius), style)
			return
		case vg.CloseComp:
			d.WriteString("Z")
		default:
			d.WriteString([]string{"M", "L"}[part.Type] + short(x) + " " + short(y))
		}
	}
	fmt.Fprintf(&c.out, `<path d="%s"%s/>`, &d, style)
}

func (c *page) FillString(f font.Face, at vg.Point, text string) {
	x, y := c.pagePoint(at)
	place := fmt.Sprintf(`x="%s" y="%s"`, short(x), short(y))
	if c.pen.turned != 0 {
		place = fmt.Sprintf(`transform="translate(%s %s) rotate(%.4g)"`, short(x), short(y), -c.pen.turned*180/math.Pi)
	}
	if f.Font.Size != pageFont {
		place += ` font-size="` + short(f.Font.Size) + `"`
	}
	if fill := c.paint("fill"); !strings.HasSuffix(fill, `"currentColor"`) {
		place += fill
	}
	if len(text) > 1 {
		place += fmt.Sprintf(` textLength="%s" lengthAdjust="spacingAndGlyphs"`, short(f.Width(text))) // in other fonts, too
	}
	fmt.Fprintf(&c.out, "<text %s>%s</text>", place, html.EscapeString(text))
}

// short writes a length to a tenth of a point.
func short(v vg.Length) string {
	return strconv.FormatFloat(math.Round(10*float64(v))/10+0, 'f', -1, 64)
}
