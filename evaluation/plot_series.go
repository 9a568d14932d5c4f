package evaluation

import (
	"cmp"
	"image/color"
	"slices"

	"glimpse/internal/figures"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// seriesGlyphs are as many as share no factor with the colours, so that no pair of
// both repeats before all are used.
var seriesGlyphs = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.SquareGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{},
	draw.BoxGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{},
}

// seriesDashes change once the colours are used up.
var seriesDashes = [][]vg.Length{nil, {vg.Points(5), vg.Points(2)}, {vg.Points(1.5), vg.Points(1.5)}}

// look is how a line stands out.
type look int

const (
	colour look = iota
	dashed      // a reference among many others
	faint       // without a name in the legend
)

// series is one line of the plot.
type series struct {
	label string
	look  look
	style int    // position in alphabetical order among those in colour: the same policies look the same in every plot of a run
	means []Mean // by ascending budget
}

// chooseStyles sets looks and styles, and returns how many lines are in colour.
func chooseStyles(lines []series, means []Mean) int {
	chosen := labelsOf(lines, nil)
	if len(lines) > MaxHighlighted {
		chosen = Highlighted(means, MaxHighlighted)
	}
	slices.Sort(chosen)
	for i := range lines {
		s := &lines[i]
		at, ok := slices.BinarySearch(chosen, s.label)
		switch {
		case ok:
			s.style = at
		case IsReference(s.means[0].Policy):
			s.look = dashed
		default:
			s.look = faint
		}
	}
	return len(chosen)
}

// seriesOf splits means into lines, best first, and full caches.
func seriesOf(means []Mean) (lines []series, full []Mean) {
	byLabel := make(map[string]int)
	for _, m := range means { // budgets ascend
		if m.Budget.IsZero() {
			full = append(full, m)
			continue
		}
		i, ok := byLabel[m.Label()]
		if !ok {
			i = len(lines)
			byLabel[m.Label()] = i
			lines = append(lines, series{label: m.Label()})
		}
		lines[i].means = append(lines[i].means, m)
	}
	slices.SortFunc(lines, func(a, b series) int {
		return cmp.Or(cmp.Compare(b.average(), a.average()), cmp.Compare(a.label, b.label))
	})
	return lines, full
}

func (s series) average() float64 {
	var sum float64
	for _, m := range s.means {
		sum += m.Score / float64(len(s.means))
	}
	return sum
}

func meansOf(lines []series) (means []Mean) {
	for _, s := range lines {
		means = append(means, s.means...)
	}
	return means
}

func labelsOf(lines []series, full []Mean) (labels []string) {
	for _, m := range full {
		labels = append(labels, referenceLabel(m))
	}
	for _, s := range lines {
		if s.look != faint {
			labels = append(labels, s.label)
		}
	}
	return labels
}

// addTo draws line, error bars and markers; the bars lie below the markers. Lines without
// colour are lines alone.
func (s series) addTo(p *plot.Plot, axis budgetAxis, shift float64, legend *plot.Legend) error {
	points := make(plotter.XYs, len(s.means))
	errs := make(plotter.YErrors, len(s.means))
	for i, m := range s.means {
		points[i] = plotter.XY{X: axis.at(m.Budget) * shift, Y: m.Shown()}
		low, high := m.Spread()
		errs[i].Low, errs[i].High = m.Shown()-low, high-m.Shown()
	}
	line, scatter, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	bars, err := plotter.NewYErrorBars(struct {
		plotter.XYs
		plotter.YErrors
	}{points, errs})
	if err != nil {
		return err
	}
	line.Width = figures.LineWidth
	switch s.look {
	case faint:
		line.Color, line.Width = figures.Faint, vg.Points(0.8)
		p.Add(line)
		return nil
	case dashed:
		line.Color, line.Dashes = referenceInk, []vg.Length{vg.Points(1.5), vg.Points(2)}
		p.Add(line)
		legend.Add(s.label, line)
		return nil
	}
	ink := figures.Colors[s.style%len(figures.Colors)]
	line.Color = ink
	line.Dashes = seriesDashes[s.style/len(figures.Colors)%len(seriesDashes)]
	scatter.Color = ink
	scatter.Radius = vg.Points(2.8)
	scatter.Shape = seriesGlyphs[s.style%len(seriesGlyphs)]
	bars.Color = ink
	bars.LineStyle.Width = vg.Points(0.8)
	bars.CapWidth = vg.Points(4)
	p.Add(bars, line, scatter)
	legend.Add(s.label, line, scatter)
	return nil
}

var referenceInk = color.Gray{Y: 0x60}

func referenceLabel(m Mean) string { return m.Label() + " cache" }

// addReference draws the accuracy of a full cache across all budgets.
func addReference(p *plot.Plot, legend *plot.Legend, m Mean) {
	f := plotter.NewFunction(func(float64) float64 { return m.Shown() })
	f.Samples = 2
	f.Color = referenceInk
	f.Width = vg.Points(1.1)
	f.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
	p.Add(f)
	legend.Add(referenceLabel(m), f)
}
