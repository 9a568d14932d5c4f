package figures

import (
	"cmp"
	"fmt"
	"image/color"
	"io"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Panel is one diagram.
type Panel struct {
	Title string
	Log   bool // logarithmic values; those that are not positive are left out
	Lines []Line
}

// Line is a curve. Points whose value is not finite are left out.
type Line struct {
	Name   string // in the legend; lines without one are not in it
	Steps  []float64
	Values []float64
	Dashed bool
	Color  int // lines of the same number have the same colour; see [CurveColors], [Reference] and [Other]
}

// Colours of lines that are there to compare others with.
const (
	Reference = -1 // dark grey
	Other     = -2 // faint, and below the others
)

// CurveColors tell as many curves apart as one picture has in colour: [Colors], and three
// of Paul Tol's muted scheme.
var CurveColors = append(slices.Clone(Colors),
	color.RGBA{R: 0x88, G: 0x22, B: 0x55, A: 0xff}, // wine
	color.RGBA{R: 0x99, G: 0x99, B: 0x33, A: 0xff}, // olive
	color.RGBA{R: 0x33, G: 0x22, B: 0x88, A: 0xff}, // indigo
)

const (
	curvesWidth = 25 * vg.Centimeter
	panelHeight = 6 * vg.Centimeter
	curvesDPI   = 100 // they are drawn anew with every validation
)

// WriteCurves draws a run's curves as one PNG: a column of the panels that have points,
// over the same steps, each with its legend beside it.
func WriteCurves(w io.Writer, panels []Panel) error {
	last, legendWidth := 0.0, vg.Length(0)
	for _, p := range panels {
		for _, l := range p.Lines {
			for _, s := range l.Steps {
				last = max(last, s)
			}
			legendWidth = max(legendWidth, TextWidth(l.Name, 9))
		}
	}
	var plots [][]*plot.Plot
	var legends []plot.Legend
	for _, p := range panels {
		drawn, legend, err := p.draw(last)
		if err != nil {
			return fmt.Errorf("curves: %s: %w", p.Title, err)
		}
		if drawn != nil {
			plots, legends = append(plots, []*plot.Plot{drawn}), append(legends, legend)
		}
	}
	if len(plots) == 0 {
		return fmt.Errorf("curves: got no points")
	}
	legendWidth += legends[0].ThumbnailWidth + vg.Points(20)
	tiles := draw.Tiles{Rows: len(plots), Cols: 1, PadX: vg.Centimeter / 2, PadY: vg.Centimeter / 2, PadTop: 5, PadBottom: 5, PadLeft: 5, PadRight: 10}
	return Write(w, PNG, max(curvesWidth, legendWidth+12*vg.Centimeter), panelHeight*vg.Length(len(plots)), curvesDPI, func(c draw.Canvas) {
		cells := plot.Align(plots, tiles, draw.Crop(c, 0, -legendWidth, 0, 0))
		for i := range plots {
			plots[i][0].Draw(cells[i][0])
			beside := c
			beside.Min.X = c.Max.X - legendWidth
			beside.Min.Y, beside.Max.Y = cells[i][0].Min.Y, plots[i][0].DataCanvas(cells[i][0]).Max.Y
			legends[i].Draw(beside)
		}
	})
}

func (p *Panel) draw(last float64) (*plot.Plot, plot.Legend, error) {
	out, legend := New(), plot.NewLegend()
	legend.Top, legend.Left = true, true
	StyleLegend(&legend)
	AddGrid(out)
	out.Title.Text, out.X.Label.Text = p.Title, "step"
	// Faint lines below the others; the legend keeps the order.
	order := slices.Clone(p.Lines)
	slices.SortStableFunc(order, func(a, b Line) int { return cmp.Compare(a.level(), b.level()) })
	named := make(map[string]*plotter.Line)
	for _, l := range order {
		xys := make(plotter.XYs, 0, len(l.Values))
		for i, v := range l.Values {
			if v-v == 0 && (!p.Log || v > 0) {
				xys = append(xys, plotter.XY{X: l.Steps[i], Y: v})
			}
		}
		if len(xys) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(thin(xys))
		if err != nil {
			return nil, legend, err
		}
		line.Color, line.Width = l.color(), LineWidth
		if l.Color == Other {
			line.Width = vg.Points(0.8)
		}
		dots.Color, dots.Radius = line.Color, 1.5
		if l.Dashed {
			line.Dashes = []vg.Length{4, 3}
		}
		out.Add(line)
		if len(xys) < 50 && l.Color != Other {
			out.Add(dots)
		}
		named[l.Name] = line
	}
	if len(named) == 0 {
		return nil, legend, nil
	}
	for _, l := range p.Lines {
		if line := named[l.Name]; l.Name != "" && line != nil {
			legend.Add(l.Name, line)
			delete(named, l.Name)
		}
	}
	out.X.Min, out.X.Max = 0, last
	out.X.Tick.Marker = RoundTicks{Most: 10, Integer: true}
	out.Y.Tick.Marker = RoundTicks{}
	if p.Log {
		lo, hi := out.Y.Min/1.1, out.Y.Max*1.1
		out.Y.Min, out.Y.Max = lo, hi
		out.Y.Scale, out.Y.Tick.Marker = plot.LogScale{}, LogTicks{}
	}
	return out, legend, nil
}

func (l *Line) color() color.Color {
	switch l.Color {
	case Reference:
		return color.Gray{Y: 0x60}
	case Other:
		return Faint
	}
	return CurveColors[l.Color%len(CurveColors)]
}

// level is 0 for lines that are drawn below others.
func (l *Line) level() int {
	if l.Color == Other {
		return 0
	}
	return 1
}

// maxPoints is about what a panel has pixels for.
const maxPoints = 2000

// thin replaces runs of points by their means where there are more than can be seen.
func thin(xys plotter.XYs) plotter.XYs {
	if len(xys) <= maxPoints {
		return xys
	}
	out := make(plotter.XYs, 0, maxPoints)
	for i := range maxPoints {
		from, to := i*len(xys)/maxPoints, (i+1)*len(xys)/maxPoints
		var m plotter.XY
		for _, p := range xys[from:to] {
			m.X += p.X / float64(to-from)
			m.Y += p.Y / float64(to-from)
		}
		out = append(out, m)
	}
	return out
}
