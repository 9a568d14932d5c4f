package report

import (
	"fmt"
	"math"
	"strconv"

	"glimpse/internal/figures"
)

// Chart is a drawing in units of a screen's pixels, y downwards.
type Chart struct {
	Title  string
	About  string // for those who cannot see it
	W, H   float64
	Lines  []Stroke // grid, axes and reference lines
	Series []Series
	Rects  []Rect
	Texts  []Text
}

// Stroke is a straight line.
type Stroke struct {
	X1, Y1, X2, Y2 float64
	Class          string
}

// Text is a line of text; Anchor is start, middle or end.
type Text struct {
	X, Y   float64
	Anchor string
	Class  string
	Text   string
	Turned bool // reads upwards
}

// Rect is a bar or a cell of a heat map.
type Rect struct {
	X, Y, W, H float64
	Class      string
	Fill       string // a colour of the data's; "" is that of the class
	Tip        string
}

// Series is what one policy has in a chart.
type Series struct {
	Name, Class string
	Path        string // of its line, "" for none
	Marks       []Point
}

// Point is a measured value with its standard error as a bar from High to Low.
type Point struct {
	X, Y, High, Low float64
	Tip             string
}

// scale maps values to positions.
type scale struct {
	low, high float64 // of values, after bend
	from, to  float64
	bend      func(float64) float64
}

func (s scale) at(v float64) float64 {
	if s.bend != nil {
		v = s.bend(v)
	}
	if s.high == s.low {
		return (s.from + s.to) / 2
	}
	return s.from + (v-s.low)/(s.high-s.low)*(s.to-s.from)
}

// ticks are round values from low to high, about n of them.
func ticks(low, high float64, n int) []float64 {
	var out []float64
	for _, t := range (figures.RoundTicks{Most: n}).Ticks(low, high) {
		out = append(out, t.Value)
	}
	return out
}

// percentRange is a range of percent with round ends around values.
func percentRange(low, high float64) (float64, float64) {
	low, high = max(0, 10*math.Floor(low/10)), min(100, 10*math.Ceil(high/10))
	if low <= 20 {
		low = 0
	}
	if high-low < 10 {
		low, high = max(0, high-10), max(10, high)
	}
	return low, high
}

// Parts of all charts.
const (
	classGrid = "grid"
	classAxis = "axis"
	classTick = "tick"
	className = "name" // of an axis
)

// frame draws the axes of a chart whose data are between the margins.
type frame struct {
	left, right, top, bottom float64
}

// yAxis draws values in percent with a grid.
func (f frame) yAxis(c *Chart, y scale, label string) {
	for _, v := range ticks(y.low, y.high, 6) {
		at := y.at(v)
		c.Lines = append(c.Lines, Stroke{f.left, at, f.right, at, classGrid})
		c.Texts = append(c.Texts, Text{X: f.left - 7, Y: at + 4, Anchor: "end", Class: classTick, Text: short(v)})
	}
	if label != "" {
		c.Texts = append(c.Texts, Text{X: f.left - 36, Y: (f.top + f.bottom) / 2, Anchor: "middle", Class: className, Text: label, Turned: true})
	}
}

// xAxis draws ticks with their texts, as many as have room, and the axis.
func (f frame) xAxis(c *Chart, x scale, values []float64, text func(float64) string, label string) {
	c.Lines = append(c.Lines, Stroke{f.left, f.bottom, f.right, f.bottom, classAxis})
	end := math.Inf(-1)
	for _, v := range values {
		at, s := x.at(v), text(v)
		c.Lines = append(c.Lines, Stroke{at, f.bottom, at, f.bottom + 4, classAxis})
		if half := textWidth(s) / 2; at-half >= end {
			c.Texts = append(c.Texts, Text{X: at, Y: f.bottom + 17, Anchor: "middle", Class: classTick, Text: s})
			end = at + half + 6
		}
	}
	c.Texts = append(c.Texts, Text{X: (f.left + f.right) / 2, Y: f.bottom + 34, Anchor: "middle", Class: className, Text: label})
}

// textWidth is about how wide small text is, in the widest of the fonts that it may be in.
func textWidth(s string) float64 { return 7.3 * float64(len([]rune(s))) }

// short writes a number with as few digits as it needs.
func short(v float64) string {
	if v == 0 { // of either sign
		v = 0
	}
	return minus(strconv.FormatFloat(v, 'g', 4, 64))
}

// path joins points to a line.
func path(points []Point) string {
	out := make([]byte, 0, 16*len(points))
	for i, p := range points {
		command := byte('L')
		if i == 0 {
			command = 'M'
		}
		out = fmt.Appendf(out, "%c%s %s", command, coordinate(p.X), coordinate(p.Y))
	}
	return string(out)
}

// coordinate writes a position to a tenth of a pixel.
func coordinate(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

// spread moves labels apart that would cover each other: at are their positions in rising
// order, and stay within low and high as long as there is room.
func spread(at []float64, gap, low, high float64) []float64 {
	out := make([]float64, len(at))
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
