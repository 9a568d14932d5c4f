package figures

import (
	"cmp"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"glimpse/internal/listing"
)

// EndLabels write the labels of series to the right of a plot, at the heights of their last
// points and apart from each other, in their colours. Those of [Other] have none.
type EndLabels []*Series

const (
	labelGap  = 12 // points between the lines of labels
	labelRoom = 14 // points between data and labels
)

// Plot implements plot.Plotter.
func (l EndLabels) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	type label struct {
		of   *Series
		from vg.Point
	}
	var labels []label
	for _, s := range slices.Backward(l) { // of equal ones the first above
		if s.Look != Other {
			last := s.Points[len(s.Points)-1]
			labels = append(labels, label{s, vg.Point{X: x(last.X), Y: y(last.Y)}})
		}
	}
	slices.SortStableFunc(labels, func(a, b label) int { return cmp.Compare(a.from.Y, b.from.Y) })
	heights := listing.Map(labels, func(l label) vg.Length { return l.from.Y })
	for i, at := range spread(heights, labelGap, c.Min.Y, c.Max.Y) {
		s := labels[i].of
		c.StrokeLine2(draw.LineStyle{Color: Faint, Width: vg.Points(0.6)}, labels[i].from.X+4, labels[i].from.Y, c.Max.X+labelRoom-2, at)
		style := p.Y.Tick.Label
		style.Color, style.XAlign = s.Line.Color, draw.XLeft
		fillMiddle(c, style, vg.Point{X: c.Max.X + labelRoom, Y: at}, s.Label)
	}
}

// GlyphBoxes implements plot.GlyphBoxer: the labels are part of the plot.
func (l EndLabels) GlyphBoxes(p *plot.Plot) []plot.GlyphBox {
	w := vg.Length(0)
	for _, s := range l {
		if s.Look != Other {
			w = max(w, p.Y.Tick.Label.Width(s.Label)+labelRoom)
		}
	}
	return []plot.GlyphBox{{X: 1, Rectangle: vg.Rectangle{Max: vg.Point{X: w}}}}
}

// spread moves labels apart that would cover each other: at are their positions in rising
// order, and stay within low and high as long as there is room.
func spread(at []vg.Length, gap, low, high vg.Length) []vg.Length {
	out := make([]vg.Length, len(at))
	for i, v := range at {
		out[i] = max(v, low)
		if i > 0 {
			out[i] = max(out[i], out[i-1]+gap)
		}
	}
	for i := len(out) - 1; i >= 0; i-- {
		limit := high
		if i < len(out)-1 {
			limit = out[i+1] - gap
		}
		out[i] = min(out[i], limit)
	}
	return out
}

// PointLabels write the labels of series beside their first points, where they cover neither each
// other nor another point. Those of [Other] have none, nor have those that find no room.
type PointLabels []*Series

// Plot implements plot.Plotter.
func (l PointLabels) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	style := p.Y.Tick.Label
	named := slices.DeleteFunc(slices.Clone(l), func(s *Series) bool { return s.Look == Other })
	var points []vg.Point
	var taken []vg.Rectangle
	for _, s := range named {
		at := vg.Point{X: x(s.Points[0].X), Y: y(s.Points[0].Y)}
		points = append(points, at)
		taken = append(taken, vg.Rectangle{Min: at.Sub(vg.Point{X: 3, Y: 3}), Max: at.Add(vg.Point{X: 3, Y: 3})})
	}
	for i, s := range named {
		w := style.Width(s.Label)
		for _, to := range []vg.Point{{X: 6}, {X: -6 - w}, {X: -w / 2, Y: 9}, {X: -w / 2, Y: -9}, {X: 5, Y: 8}, {X: 5, Y: -8}, {X: -5 - w, Y: 8}, {X: -5 - w, Y: -8}} {
			at := points[i].Add(to)
			box := vg.Rectangle{Min: vg.Point{X: at.X, Y: at.Y - 4}, Max: vg.Point{X: at.X + w, Y: at.Y + 4}}
			if box.Min.X < c.Min.X || box.Max.X > c.Max.X || box.Min.Y < c.Min.Y || box.Max.Y > c.Max.Y+6 ||
				slices.ContainsFunc(taken, func(o vg.Rectangle) bool {
					return box.Min.X < o.Max.X && o.Min.X < box.Max.X && box.Min.Y < o.Max.Y && o.Min.Y < box.Max.Y
				}) {
				continue
			}
			style.Color, style.XAlign = s.Line.Color, draw.XLeft
			fillMiddle(c, style, at, s.Label)
			taken = append(taken, box)
			break
		}
	}
}
