package figures

import (
	"fmt"
	"image/color"
	"io"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Panel is one diagram of curves.
type Panel struct {
	Title string
	Log   bool // logarithmic values; those that are not positive are left out
	Lines []*Series
}

// CurveColors tell as many curves apart as one picture has in colour: [Colors], and three
// of Paul Tol's muted scheme.
var CurveColors = append(slices.Clone(Colors),
	color.RGBA{R: 0x88, G: 0x22, B: 0x55, A: 0xff}, // wine
	color.RGBA{R: 0x99, G: 0x99, B: 0x33, A: 0xff}, // olive
	color.RGBA{R: 0x33, G: 0x22, B: 0x88, A: 0xff}, // indigo
)

// NewCurve is a line without points, whose colour is one of [CurveColors]. Points whose value is not
// finite are not drawn.
func NewCurve(name string, look int, dashed bool) *Series {
	s := NewSeries(name, look, nil)
	s.Mark, s.Bars, s.Line.Dashes = draw.GlyphStyle{}, false, nil
	if look >= 0 {
		s.Line.Color = CurveColors[look%len(CurveColors)]
	}
	if dashed {
		s.Line.Dashes = []vg.Length{4, 3}
	}
	return s
}

// Add appends a value.
func (s *Series) Add(x, y float64) {
	s.Points = append(s.Points, Point{X: x, Y: y, Low: y, High: y})
}

const (
	curvesWidth = 25 * vg.Centimeter
	panelHeight = 6 * vg.Centimeter
	curvesDPI   = 100 // they are drawn anew with every validation
)

// WriteCurves draws a run's curves as one PNG: a column of the panels that have points,
// over the same steps, each with its legend beside it.
func WriteCurves(w io.Writer, panels []Panel) error {
	last, width := 0.0, curvesWidth
	var plots [][]*plot.Plot
	var legends []*Legend
	for _, p := range panels {
		for _, l := range p.Lines {
			for _, at := range l.Points {
				last = max(last, at.X)
			}
		}
	}
	for _, p := range panels {
		if drawn, legend := p.drawPanel(last); drawn != nil {
			plots, legends = append(plots, []*plot.Plot{drawn}), append(legends, legend)
			width = max(width, legend.Width()+12*vg.Centimeter)
		}
	}
	if len(plots) == 0 {
		return fmt.Errorf("curves: got no points")
	}
	return WriteGrid(w, PNG, width, panelHeight*vg.Length(len(plots)), curvesDPI, plots, legends...)
}

// drawPanel is nil where no curve has points.
func (p *Panel) drawPanel(last float64) (*plot.Plot, *Legend) {
	out, legend := New(), NewLegend()
	AddGrid(out)
	out.Title.Text, out.X.Label.Text = p.Title, "step"
	var drawn []*Series
	for _, l := range p.Lines {
		s := *l
		s.Points = slices.DeleteFunc(slices.Clone(l.Points), func(at Point) bool { return at.Y-at.Y != 0 || p.Log && at.Y <= 0 })
		if len(s.Points) == 0 {
			continue
		}
		if len(s.Points) < 50 && s.Look != Other {
			s.Mark = draw.GlyphStyle{Color: s.Line.Color, Radius: 1.5, Shape: draw.CircleGlyph{}}
		}
		s.Points = thin(s.Points)
		drawn = append(drawn, &s)
	}
	if len(drawn) == 0 {
		return nil, nil
	}
	AddSeries(out, legend, drawn...)
	out.X.Min, out.X.Max = 0, last
	out.X.Tick.Marker = RoundTicks{Most: 10, Integer: true}
	out.Y.Tick.Marker = RoundTicks{}
	if p.Log {
		out.Y.Min, out.Y.Max = out.Y.Min/1.1, out.Y.Max*1.1
		out.Y.Scale, out.Y.Tick.Marker = plot.LogScale{}, LogTicks{}
	}
	return out, legend
}

// maxPoints is about what a panel has pixels for.
const maxPoints = 2000

// thin replaces runs of points by their means where there are more than can be seen.
func thin(points []Point) []Point {
	if len(points) <= maxPoints {
		return points
	}
	out := make([]Point, 0, maxPoints)
	for i := range maxPoints {
		from, to := i*len(points)/maxPoints, (i+1)*len(points)/maxPoints
		var m Point
		for _, p := range points[from:to] {
			m.X += p.X / float64(to-from)
			m.Y += p.Y / float64(to-from)
		}
		out = append(out, m)
	}
	return out
}
