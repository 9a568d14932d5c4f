package figures

import (
	"cmp"
	"fmt"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"glimpse/internal/listing"
)

// Point is a value with the ends of its error bar.
type Point struct {
	X, Y, Low, High float64
	Tip             string // that a page shows when the pointer is near
}

// Series are the points of one thing: error bars, a line and marks, in this order from below.
type Series struct {
	Name   string
	Label  string // of it beside its points
	Points []Point
	Line   draw.LineStyle  // none without width
	Mark   draw.GlyphStyle // none without a shape
	Bars   bool            // with caps on pictures
	Look   int
}

// Looks of series that are there to compare others with. Those from 0 on are of one in colour.
const (
	Reference = -1 // dark grey
	Other     = -2 // faint, and below the others
)

// glyphs are as many as share no factor with the colours, so that no pair of both repeats
// before all are used.
var glyphs = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.SquareGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{},
	draw.BoxGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{},
}

// dashes change once the colours are used up.
var dashes = [][]vg.Length{nil, {vg.Points(5), vg.Points(2)}, {vg.Points(1.5), vg.Points(1.5)}}

// NewSeries are points in a look. Those to compare with are lines alone.
func NewSeries(name string, look int, points []Point) *Series {
	s := &Series{Name: name, Label: name, Points: points, Look: look, Line: draw.LineStyle{Color: Strong, Width: LineWidth}}
	switch look {
	case Reference:
		s.Line.Dashes = []vg.Length{vg.Points(1.5), vg.Points(2)}
	case Other:
		s.Line.Color, s.Line.Width = Faint, vg.Points(0.8)
	default:
		s.Line.Color, s.Line.Dashes = Colors[look%len(Colors)], dashes[look/len(Colors)%len(dashes)]
		s.Mark = draw.GlyphStyle{Color: s.Line.Color, Radius: vg.Points(2.8), Shape: glyphs[look%len(glyphs)]}
		s.Bars = true
	}
	return s
}

// ForPage has marks for the pointer to find in all looks: circles, rings where a colour comes a
// second time and for references.
func (s *Series) ForPage() *Series {
	s.Mark = draw.GlyphStyle{Color: s.Line.Color, Radius: vg.Points(2.7), Shape: draw.CircleGlyph{}}
	if s.Look < 0 {
		s.Mark.Radius = vg.Points(1.9)
	}
	if s.Look == Reference || s.Look >= len(Colors) {
		s.Mark.Shape = draw.RingGlyph{}
	}
	s.Bars = s.Look != Other
	return s
}

func (s *Series) bars() *plotter.YErrorBars {
	b := &plotter.YErrorBars{XYs: s.xys(), YErrors: make(plotter.YErrors, len(s.Points)), LineStyle: draw.LineStyle{Color: s.Line.Color, Width: vg.Points(0.8)}, CapWidth: vg.Points(4)}
	for i, p := range s.Points {
		b.YErrors[i].Low, b.YErrors[i].High = p.Y-p.Low, p.High-p.Y
	}
	return b
}

func (s *Series) xys() plotter.XYs {
	return listing.Map(s.Points, func(p Point) plotter.XY { return plotter.XY{X: p.X, Y: p.Y} })
}

// Plot implements plot.Plotter.
func (s *Series) Plot(c draw.Canvas, p *plot.Plot) {
	page := pageOf(c)
	if page != nil {
		page.beginPath(s)
		defer page.closePath()
	}
	if s.Bars {
		b := s.bars()
		if page != nil {
			b.CapWidth = 0
		}
		b.Plot(c, p)
	}
	(&plotter.Line{XYs: s.xys(), LineStyle: s.Line}).Plot(c, p)
	if s.Mark.Shape == nil {
		return
	}
	x, y := p.Transforms(&c)
	for _, at := range s.Points {
		setTip(c, at.Tip)
		c.DrawGlyph(s.Mark, vg.Point{X: x(at.X), Y: y(at.Y)})
	}
}

// DataRange implements plot.DataRanger.
func (s *Series) DataRange() (xmin, xmax, ymin, ymax float64) {
	if s.Bars {
		return s.bars().DataRange()
	}
	return plotter.XYRange(s.xys())
}

// GlyphBoxes implements plot.GlyphBoxer.
func (s *Series) GlyphBoxes(p *plot.Plot) (out []plot.GlyphBox) {
	if s.Bars {
		out = s.bars().GlyphBoxes(p)
	}
	if s.Mark.Shape != nil {
		out = append(out, (&plotter.Scatter{XYs: s.xys(), GlyphStyle: s.Mark}).GlyphBoxes(p)...)
	}
	return out
}

// Thumbnail implements plot.Thumbnailer.
func (s *Series) Thumbnail(c *draw.Canvas) {
	c.StrokeLine2(s.Line, c.Min.X, c.Center().Y, c.Max.X, c.Center().Y)
	if s.Mark.Shape != nil {
		c.DrawGlyph(s.Mark, c.Center())
	}
}

// Legend names the series of a plot beside it.
type Legend struct {
	plot.Legend
	Names []string
}

// NewLegend is one without names.
func NewLegend() *Legend {
	l := &Legend{Legend: plot.NewLegend()}
	l.Top, l.Left = true, true
	l.TextStyle.Font = Sans(9)
	l.Padding = vg.Points(3)
	l.ThumbnailWidth = vg.Points(26)
	return l
}

// addName names something once.
func (l *Legend) addName(name string, thumbnail plot.Thumbnailer) {
	if name != "" && !slices.Contains(l.Names, name) {
		l.Names = append(l.Names, name)
		l.Add(name, thumbnail)
	}
}

// Width is what it takes.
func (l *Legend) Width() vg.Length { return l.Rectangle(draw.Canvas{}).Size().X + vg.Points(21.5) }

// AddSeries draws series in their order, but [Other] first, below the rest, and names
// those that have a name in the legend, each name once.
func AddSeries(p *plot.Plot, l *Legend, all ...*Series) {
	for _, s := range all {
		l.addName(s.Name, s)
	}
	below := slices.Clone(all)
	slices.SortStableFunc(below, func(a, b *Series) int { return cmp.Compare(min(a.Look, Reference), min(b.Look, Reference)) })
	for _, s := range below {
		p.Add(s)
	}
}

// level is what others reach at most.
var level = draw.LineStyle{Color: Strong, Width: vg.Points(1.1), Dashes: []vg.Length{vg.Points(4), vg.Points(3)}}

// AddLevel draws a dashed line at one value across a plot. It does not change the plot's range.
func AddLevel(p *plot.Plot, l *Legend, name string, value float64) {
	f := plotter.NewFunction(func(float64) float64 { return value })
	f.Samples = 2
	f.LineStyle = level
	p.Add(f)
	l.addName(name, f)
}

// Others is the name of n series that have none of their own.
func Others(n int) string { return fmt.Sprintf("%d others", n) }
