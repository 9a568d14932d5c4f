package evaluation

import (
	"cmp"
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strings"

	"glimpse/internal/figures"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/palette"
	"gonum.org/v1/plot/palette/moreland"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// NeedleCell is one measured cell of a needle-in-a-haystack test: how often one
// policy finds a needle at one depth of prompts of one length.
type NeedleCell struct {
	Policy   string  `json:"policy"`           // "lookaheadkv/shipped" with an adapter
	Budget   string  `json:"budget,omitempty"` // "" where there is only one
	Depth    float64 `json:"depth"`            // of the needle: 0 at the start of the prompt, 1 at its end
	Tokens   int     `json:"tokens"`           // prompt length
	Accuracy float64 `json:"accuracy"`         // mean score, 0–1
	Samples  int     `json:"samples"`
	Metric   string  `json:"metric,omitempty"` // of the score; "" is MetricExactAnswer
}

// maxNeedleSteps bounds the lengths and the depths of a heat map.
const maxNeedleSteps = 128

// PlotNeedle writes a picture of heat maps, a panel per policy in order of appearance,
// with the prompt length from left to right, the needle's depth from top to bottom,
// and one colour bar for all. Where there are budgets, each policy has a row of panels and
// each budget a column, in order of appearance. Lengths and depths that occur in any cell are spaced
// evenly; a policy's cells that were not measured stay grey, which is said below the bar. Each panel's title gives
// the mean over its cells.
//
// No cells, repeated cells, values outside their range, more than 48 panels and more than
// 128 lengths or depths are errors.
func PlotNeedle(w io.Writer, format figures.Format, cells []NeedleCell) error {
	fail := func(err error) error { return fmt.Errorf("plot needle: %w", err) }
	colors, err := AccuracyColors()
	if err != nil {
		return fail(err)
	}
	panels, err := panelsOf(cells, colors)
	if err != nil {
		return fail(err)
	}

	grid := gridOf(panels)
	tiles := draw.Tiles{Cols: len(grid[0]), Rows: len(grid), PadX: vg.Points(10), PadY: vg.Points(10)}
	plots := make([][]*plot.Plot, tiles.Rows)
	for row := range plots {
		plots[row] = make([]*plot.Plot, tiles.Cols)
		for column := range plots[row] {
			if p := grid[row][column]; p != nil {
				below := row+1 < tiles.Rows && grid[row+1][column] != nil
				plots[row][column] = p.axes(column == 0, !below)
			}
		}
	}
	const barWidth = 0.75 * vg.Inch
	width := vg.Length(tiles.Cols)*2.3*vg.Inch + barWidth + 0.4*vg.Inch
	height := vg.Length(tiles.Rows)*2.0*vg.Inch + 0.5*vg.Inch
	return figures.Write(w, format, width, height, plotDPI, func(c draw.Canvas) {
		c = draw.Crop(c, vg.Points(6), -vg.Points(6), vg.Points(6), -vg.Points(8))
		canvases := plot.Align(plots, tiles, draw.Crop(c, 0, -barWidth, 0, 0))
		for row := range plots {
			for column, p := range plots[row] {
				if p == nil {
					continue
				}
				tile := canvases[row][column]
				p.Draw(tile)
				title := grid[row][column].title()
				style, data := p.Title.TextStyle, p.DataCanvas(tile)
				tile.FillText(style, vg.Point{X: data.Center().X, Y: tile.Max.Y + style.FontExtents().Descent}, title)
			}
		}
		// The bar is as high as the data of the first row of panels.
		bar := draw.Crop(c, c.Max.X-c.Min.X-barWidth+vg.Points(8), 0, 0, 0)
		data := plots[0][0].DataCanvas(canvases[0][0])
		drawColorBar(bar, colors, scoreName(cells), data.Min.Y, data.Max.Y)
		if slices.ContainsFunc(panels, (*panel).incomplete) {
			drawNotMeasured(bar)
		}
	})
}

// gridOf puts panels in rows: of a policy each where there are budgets, which have a column
// each, and otherwise of three, or of two where there are four. Places may stay empty.
func gridOf(panels []*panel) [][]*panel {
	var budgets, policies []string
	for _, p := range panels {
		if p.budget != "" && !slices.Contains(budgets, p.budget) {
			budgets = append(budgets, p.budget)
		}
		if !slices.Contains(policies, p.policy) {
			policies = append(policies, p.policy)
		}
	}
	columns := min(len(panels), 3)
	if len(panels) == 4 {
		columns = 2
	}
	if len(budgets) > 0 {
		columns = len(budgets)
	}
	var grid [][]*panel
	for i, p := range panels {
		row, column := i/columns, i%columns
		if len(budgets) > 0 {
			row, column = slices.Index(policies, p.policy), max(0, slices.Index(budgets, p.budget))
		}
		for len(grid) <= row {
			grid = append(grid, make([]*panel, columns))
		}
		grid[row][column] = p
	}
	return grid
}

// scoreName is what the colour bar says.
func scoreName(cells []NeedleCell) string {
	metric := cells[0].Metric
	switch {
	case slices.ContainsFunc(cells, func(c NeedleCell) bool { return c.Metric != metric }):
		return "score (%)"
	case metric == "" || metric == MetricExactAnswer:
		return "accuracy (%)"
	}
	return metric + " (%)"
}

// AccuracyColors goes from dark violet over green to yellow with evenly rising
// lightness, so that it reads the same in grey and with any colour vision (the
// corners of matplotlib's viridis). The range is 0 to 1.
func AccuracyColors() (palette.ColorMap, error) {
	m, err := moreland.NewLuminance([]color.Color{
		color.RGBA{R: 0x44, G: 0x01, B: 0x54, A: 0xff},
		color.RGBA{R: 0x3b, G: 0x52, B: 0x8b, A: 0xff},
		color.RGBA{R: 0x21, G: 0x91, B: 0x8c, A: 0xff},
		color.RGBA{R: 0x5e, G: 0xc9, B: 0x62, A: 0xff},
		color.RGBA{R: 0xfd, G: 0xe7, B: 0x25, A: 0xff},
	})
	if err != nil {
		return nil, err
	}
	m.SetMin(0)
	m.SetMax(1)
	return m, nil
}

// panel is one policy's heat map: a grid of unit squares around whole coordinates,
// the smallest depth on top. It is its own plotter because gonum's blends
// neighbouring cells, or loses those at the edge to rounding.
type panel struct {
	policy string
	budget string // "" where there is only one
	tokens []int
	depths []float64
	values [][]float64 // [depth][length]; NaN where nothing was measured
	colors palette.ColorMap
}

var (
	_ plot.Plotter    = (*panel)(nil)
	_ plot.DataRanger = (*panel)(nil)
)

var notMeasured = color.Gray{Y: 0xd0}

// DataRange implements plot.DataRanger.
func (p *panel) DataRange() (xmin, xmax, ymin, ymax float64) {
	return -0.5, float64(len(p.tokens)) - 0.5, -0.5, float64(len(p.depths)) - 0.5
}

// Plot implements plot.Plotter.
func (p *panel) Plot(c draw.Canvas, axes *plot.Plot) {
	x, y := axes.Transforms(&c)
	hair := vg.Points(0.25) // half the white line between two cells
	if x(1)-x(0) < vg.Points(4) || y(1)-y(0) < vg.Points(4) {
		hair = 0
	}
	for d, row := range p.values {
		top := float64(len(p.depths)-d) - 0.5
		for t, accuracy := range row {
			c.SetColor(notMeasured)
			if ink, err := p.colors.At(accuracy); err == nil { // an error is a NaN
				c.SetColor(ink)
			}
			left := float64(t) - 0.5
			c.Fill(vg.Rectangle{
				Min: vg.Point{X: x(left) + hair, Y: y(top-1) + hair},
				Max: vg.Point{X: x(left+1) - hair, Y: y(top) - hair},
			}.Path())
		}
	}
}

func panelsOf(cells []NeedleCell, colors palette.ColorMap) ([]*panel, error) {
	if len(cells) == 0 {
		return nil, errors.New("no cells")
	}
	var tokens []int
	var depths []float64
	for i, c := range cells {
		if err := c.validate(); err != nil {
			return nil, fmt.Errorf("cell %d (%.200q, %d tokens, depth %v): %w", i, c.Policy, c.Tokens, c.Depth, err)
		}
		tokens, depths = append(tokens, c.Tokens), append(depths, c.Depth)
	}
	slices.Sort(tokens)
	slices.Sort(depths)
	tokens, depths = slices.Compact(tokens), slices.Compact(depths)
	if len(tokens) > maxNeedleSteps || len(depths) > maxNeedleSteps {
		return nil, fmt.Errorf("%d prompt lengths and %d depths, want at most %d of each", len(tokens), len(depths), maxNeedleSteps)
	}

	var panels []*panel
	named := make(map[[2]string]*panel)
	for i, c := range cells {
		p := named[[2]string{c.Policy, c.Budget}]
		if p == nil {
			if len(panels) == maxPanels {
				return nil, fmt.Errorf("more than %d policies at each budget", maxPanels)
			}
			p = &panel{policy: c.Policy, budget: c.Budget, tokens: tokens, depths: depths, values: make([][]float64, len(depths)), colors: colors}
			for d := range p.values {
				p.values[d] = slices.Repeat([]float64{math.NaN()}, len(tokens))
			}
			panels, named[[2]string{c.Policy, c.Budget}] = append(panels, p), p
		}
		d, _ := slices.BinarySearch(depths, c.Depth)
		t, _ := slices.BinarySearch(tokens, c.Tokens)
		if !math.IsNaN(p.values[d][t]) {
			return nil, fmt.Errorf("cell %d: a second one of %s at %d tokens, depth %v", i, p.name(), c.Tokens, c.Depth)
		}
		p.values[d][t] = c.Accuracy
	}
	return panels, nil
}

func (c NeedleCell) validate() error {
	switch {
	case !isName(c.Policy):
		return fmt.Errorf("policy: got %.200q, want %s", c.Policy, wantName)
	case c.Budget != "" && !isName(c.Budget):
		return fmt.Errorf("budget: got %.200q, want %s", c.Budget, wantName)
	case !(c.Depth >= 0 && c.Depth <= 1):
		return fmt.Errorf("depth: got %v, want a share in [0, 1]", c.Depth)
	case c.Tokens < 1:
		return fmt.Errorf("tokens: got %d, want ≥ 1", c.Tokens)
	case !(c.Accuracy >= 0 && c.Accuracy <= 1):
		return fmt.Errorf("accuracy: got %v, want a share in [0, 1]", c.Accuracy)
	case c.Samples < 1:
		return fmt.Errorf("samples: got %d, want ≥ 1", c.Samples)
	}
	return nil
}

// mean is over the measured cells.
func (p *panel) mean() float64 {
	var sum, n float64
	for _, row := range p.values {
		for _, v := range row {
			if !math.IsNaN(v) {
				sum, n = sum+v, n+1
			}
		}
	}
	return sum / n
}

// name is the policy with its budget.
func (p *panel) name() string { return strings.TrimSpace(p.policy + " " + p.budget) }

func (p *panel) title() string { return fmt.Sprintf("%s (mean %.0f%%)", p.name(), 100*p.mean()) }

// incomplete tells that there are cells that were not measured.
func (p *panel) incomplete() bool {
	return slices.ContainsFunc(p.values, func(row []float64) bool { return slices.ContainsFunc(row, math.IsNaN) })
}

// drawNotMeasured says below the colour bar what grey is.
func drawNotMeasured(c draw.Canvas) {
	const side = 8 // points
	at := vg.Point{X: c.Min.X, Y: c.Min.Y + vg.Points(2)}
	c.SetColor(notMeasured)
	c.Fill(vg.Rectangle{Min: at, Max: vg.Point{X: at.X + vg.Points(side), Y: at.Y + vg.Points(side)}}.Path())
	style := figures.New().Legend.TextStyle
	style.Font = figures.Sans(8)
	c.FillText(style, vg.Point{X: at.X + vg.Points(side+3), Y: at.Y + vg.Points(side)/2 - style.Rectangle("x").Size().Y/2}, "no data")
}

// axes returns the panel with its axes; the title is drawn afterwards, in the middle
// of the data rather than of the canvas, in the line that the blank one reserves.
func (p *panel) axes(yLabel, xLabel bool) *plot.Plot {
	out := figures.New()
	out.Title.Text = " "
	out.Title.TextStyle.Font = figures.Sans(10)
	if yLabel {
		out.Y.Label.Text = "depth of the needle (%)"
	}
	if xLabel {
		out.X.Label.Text = "prompt tokens"
	}
	for _, axis := range []*plot.Axis{&out.X, &out.Y} {
		axis.Label.TextStyle.Font = figures.Sans(9)
		axis.Tick.Label.Font = figures.Sans(8)
		axis.Tick.Length = vg.Points(2.5)
		axis.Padding = 0
		axis.LineStyle.Width = 0
	}
	out.Add(p)

	lengths := make([]string, len(p.tokens))
	for i, n := range p.tokens {
		lengths[i] = formatTokens(n)
	}
	depths := make([]string, len(p.depths))
	for i, d := range p.depths {
		depths[len(depths)-1-i] = fmt.Sprintf("%.3g", 100*d)
	}
	widest := slices.MaxFunc(lengths, func(a, b string) int { return cmp.Compare(figures.TextWidth(a, 8), figures.TextWidth(b, 8)) })
	const side = 1.7 * vg.Inch // about what the axes leave
	out.X.Tick.Marker = thinnedTicks(lengths, figures.TextWidth(widest, 8)+vg.Points(4), side)
	out.Y.Tick.Marker = thinnedTicks(depths, vg.Points(10), side)
	return out
}

// formatTokens shortens whole multiples of 1024 to "4k".
func formatTokens(n int) string {
	if n%1024 == 0 {
		return fmt.Sprintf("%dk", n/1024)
	}
	return fmt.Sprint(n)
}

// thinnedTicks labels as many of the evenly spaced positions as fit beside each
// other, the last one always.
func thinnedTicks(labels []string, each, side vg.Length) plot.ConstantTicks {
	room := max(1, int(side/each))
	every := (len(labels) + room - 1) / room
	ticks := make(plot.ConstantTicks, len(labels))
	for i := range labels {
		ticks[i].Value = float64(i)
		if (len(labels)-1-i)%every == 0 {
			ticks[i].Label = labels[i]
		}
	}
	return ticks
}

// colorBar is drawn in rectangles: gonum's is an image, which a PDF turns upside down.
type colorBar struct{ palette.ColorMap }

// DataRange implements plot.DataRanger.
func (colorBar) DataRange() (xmin, xmax, ymin, ymax float64) { return 0, 1, 0, 1 }

// Plot implements plot.Plotter. Every step covers what is above it, so that no lines of
// background show between them.
func (b colorBar) Plot(c draw.Canvas, axes *plot.Plot) {
	const steps = 128
	x, y := axes.Transforms(&c)
	for i := range steps {
		ink, err := b.At((float64(i) + 0.5) / steps)
		if err != nil {
			return // the range is that of the map
		}
		c.SetColor(ink)
		c.Fill(vg.Rectangle{Min: vg.Point{X: x(0), Y: y(float64(i) / steps)}, Max: vg.Point{X: x(1), Y: y(1)}}.Path())
	}
}

// drawColorBar draws the scale of all panels between two heights of the canvas.
func drawColorBar(c draw.Canvas, colors palette.ColorMap, name string, bottom, top vg.Length) {
	p := figures.New()
	p.HideX()
	p.X.Padding, p.Y.Padding = 0, 0
	p.Y.Tick.Label.Font = figures.Sans(8)
	p.Y.LineStyle.Width = 0
	p.Y.Tick.Length = vg.Points(2.5)
	p.Y.Label.Text = name
	p.Y.Label.TextStyle.Font = figures.Sans(9)
	var ticks plot.ConstantTicks
	for share := 0; share <= 100; share += 20 {
		ticks = append(ticks, plot.Tick{Value: float64(share) / 100, Label: fmt.Sprint(share)})
	}
	p.Y.Tick.Marker = ticks
	p.Add(colorBar{colors})

	// The plot pads its data for half of the end labels; make up for it.
	data := p.DataCanvas(c)
	c.Min.Y += bottom - data.Min.Y
	c.Max.Y += top - data.Max.Y
	p.Draw(c)
}
