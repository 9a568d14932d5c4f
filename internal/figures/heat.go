package figures

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/palette"
	"gonum.org/v1/plot/palette/moreland"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Shades are the colours of shares from 0 to 1, from dark violet over green to yellow with evenly
// rising lightness, so that they read the same in grey and with any colour vision (the corners of
// matplotlib's viridis).
var Shades = func() palette.ColorMap {
	m, err := moreland.NewLuminance([]color.Color{
		color.RGBA{R: 0x44, G: 0x01, B: 0x54, A: 0xff},
		color.RGBA{R: 0x3b, G: 0x52, B: 0x8b, A: 0xff},
		color.RGBA{R: 0x21, G: 0x91, B: 0x8c, A: 0xff},
		color.RGBA{R: 0x5e, G: 0xc9, B: 0x62, A: 0xff},
		color.RGBA{R: 0xfd, G: 0xe7, B: 0x25, A: 0xff},
	})
	if err != nil {
		panic(err) // the lightness of these rises
	}
	m.SetMin(0)
	m.SetMax(1)
	return m
}()

// NotMeasured is the colour of cells without a value.
var NotMeasured = color.Gray{Y: 0xd0}

// Heat is a map of shares: unit squares around whole coordinates, the first row on top. It is its
// own plotter because gonum's blends neighbouring cells, or loses those at the edge to rounding.
type Heat struct {
	Title          string
	XLabel, YLabel string
	X, Y           []string    // names of columns and rows
	Values         [][]float64 // [row][column], 0–1; NaN where nothing was measured
	Tips           [][]string  // the same on a page, where cells have their numbers and those without a value are left out; nil in pictures
}

// DataRange implements plot.DataRanger.
func (h *Heat) DataRange() (xmin, xmax, ymin, ymax float64) {
	return -0.5, float64(len(h.X)) - 0.5, -0.5, float64(len(h.Y)) - 0.5
}

// Plot implements plot.Plotter.
func (h *Heat) Plot(c draw.Canvas, axes *plot.Plot) {
	x, y := axes.Transforms(&c)
	hair := vg.Points(0.25) // half the white line between two cells
	if x(1)-x(0) < vg.Points(4) || y(1)-y(0) < vg.Points(4) {
		hair = 0
	}
	text := axes.X.Tick.Label
	text.YAlign = draw.YCenter
	for row, values := range h.Values {
		top := float64(len(h.Y)-row) - 0.5
		for column, v := range values {
			ink, err := Shades.At(v)
			if err != nil { // a NaN
				if ink = NotMeasured; h.Tips != nil {
					continue
				}
			}
			left := float64(column) - 0.5
			cell := vg.Rectangle{
				Min: vg.Point{X: x(left) + hair, Y: y(top-1) + hair},
				Max: vg.Point{X: x(left+1) - hair, Y: y(top) - hair},
			}
			c.SetColor(ink)
			if h.Tips != nil {
				setTip(c, h.Tips[row][column])
			}
			c.Fill(cell.Path())
			if size := cell.Size(); h.Tips != nil && size.X >= vg.Points(22) && size.Y >= vg.Points(11) {
				if text.Color = color.White; v > 0.6 {
					text.Color = color.Gray{Y: 0x1d}
				}
				fillMiddle(c, text, vg.Point{X: cell.Min.X + size.X/2, Y: cell.Min.Y + size.Y/2}, fmt.Sprintf("%.0f", 100*v))
			}
		}
	}
}

// NewPlot is the map with its axes. Each axis names as many of its rows or columns as the side has room for.
func (h *Heat) NewPlot(side vg.Point) *plot.Plot {
	out := New()
	smallAxes(out)
	out.X.Label.Text, out.Y.Label.Text = h.XLabel, h.YLabel
	out.Add(h)
	widest := vg.Length(0)
	for _, name := range h.X {
		widest = max(widest, out.X.Tick.Label.Width(name))
	}
	down := slices.Clone(h.Y)
	slices.Reverse(down)
	out.X.Tick.Marker = thinnedTicks(h.X, widest+vg.Points(4), side.X)
	out.Y.Tick.Marker = thinnedTicks(down, vg.Points(10), side.Y)
	return out
}

// measuredAll tells that every cell was measured.
func (h *Heat) measuredAll() bool {
	return !slices.ContainsFunc(h.Values, func(row []float64) bool { return slices.ContainsFunc(row, math.IsNaN) })
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

// WriteHeats writes maps in rows and columns, where some may be nil, with one colour bar for all,
// with the name of the values. The last maps of a column and the first ones of a row have the names of the axes.
func WriteHeats(w io.Writer, format Format, grid [][]*Heat, name string) error {
	tiles := draw.Tiles{Cols: len(grid[0]), Rows: len(grid), PadX: vg.Points(10), PadY: vg.Points(10)}
	plots := make([][]*plot.Plot, tiles.Rows)
	complete := true
	for row := range plots {
		plots[row] = make([]*plot.Plot, tiles.Cols)
		for column, h := range grid[row] {
			if h == nil {
				continue
			}
			const side = 1.7 * vg.Inch // about what the axes leave
			p := h.NewPlot(vg.Point{X: side, Y: side})
			p.Title.Text = " " // the title is drawn afterwards in this line, in the middle of the data rather than of the canvas
			p.Title.TextStyle.Font = Sans(10)
			if column > 0 {
				p.Y.Label.Text = ""
			}
			if row+1 < tiles.Rows && grid[row+1][column] != nil {
				p.X.Label.Text = ""
			}
			plots[row][column], complete = p, complete && h.measuredAll()
		}
	}
	const barWidth = 0.75 * vg.Inch
	width := vg.Length(tiles.Cols)*2.3*vg.Inch + barWidth + 0.4*vg.Inch
	height := vg.Length(tiles.Rows)*2.0*vg.Inch + 0.5*vg.Inch
	return Write(w, format, width, height, DPI, func(c draw.Canvas) {
		c = margins(c)
		canvases := plot.Align(plots, tiles, draw.Crop(c, 0, -barWidth, 0, 0))
		for row := range plots {
			for column, p := range plots[row] {
				if p == nil {
					continue
				}
				tile := canvases[row][column]
				p.Draw(tile)
				style, data := p.Title.TextStyle, p.DataCanvas(tile)
				tile.FillText(style, vg.Point{X: data.Center().X, Y: tile.Max.Y + style.FontExtents().Descent}, grid[row][column].Title)
			}
		}
		// The bar is as high as the data of the first row of maps.
		bar := draw.Crop(c, c.Max.X-c.Min.X-barWidth+vg.Points(8), 0, 0, 0)
		data := plots[0][0].DataCanvas(canvases[0][0])
		drawColorBar(bar, name, data.Min.Y, data.Max.Y)
		if !complete {
			drawNotMeasured(bar)
		}
	})
}

// drawNotMeasured says below the colour bar what grey is.
func drawNotMeasured(c draw.Canvas) {
	const side = 8 // points
	at := vg.Point{X: c.Min.X, Y: c.Min.Y + vg.Points(2)}
	c.SetColor(NotMeasured)
	c.Fill(vg.Rectangle{Min: at, Max: vg.Point{X: at.X + vg.Points(side), Y: at.Y + vg.Points(side)}}.Path())
	style := New().Legend.TextStyle
	style.Font = Sans(8)
	c.FillText(style, vg.Point{X: at.X + vg.Points(side+3), Y: at.Y + vg.Points(side)/2 - style.Rectangle("x").Size().Y/2}, "no data")
}

// colorBar is drawn in rectangles: gonum's is an image, which a PDF turns upside down.
type colorBar struct{}

// DataRange implements plot.DataRanger.
func (colorBar) DataRange() (xmin, xmax, ymin, ymax float64) { return 0, 1, 0, 1 }

// Plot implements plot.Plotter. Every step covers what is above it, so that no lines of
// background show between them.
func (colorBar) Plot(c draw.Canvas, axes *plot.Plot) {
	const steps = 128
	x, y := axes.Transforms(&c)
	for i := range steps {
		ink, err := Shades.At((float64(i) + 0.5) / steps)
		if err != nil {
			return // the range is that of the map
		}
		c.SetColor(ink)
		c.Fill(vg.Rectangle{Min: vg.Point{X: x(0), Y: y(float64(i) / steps)}, Max: vg.Point{X: x(1), Y: y(1)}}.Path())
	}
}

// drawColorBar draws the scale of all maps between two heights of the canvas.
func drawColorBar(c draw.Canvas, name string, bottom, top vg.Length) {
	p := New()
	smallAxes(p)
	p.HideX()
	p.Y.Label.Text = name
	var ticks plot.ConstantTicks
	for share := 0; share <= 100; share += 20 {
		ticks = append(ticks, plot.Tick{Value: float64(share) / 100, Label: fmt.Sprint(share)})
	}
	p.Y.Tick.Marker = ticks
	p.Add(colorBar{})

	// The plot pads its data for half of the end labels; make up for it.
	data := p.DataCanvas(c)
	c.Min.Y += bottom - data.Min.Y
	c.Max.Y += top - data.Max.Y
	p.Draw(c)
}
