package figures

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"codeberg.org/go-pdf/fpdf"
	"golang.org/x/text/encoding/charmap"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgpdf"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Format is how a picture is stored.
type Format string

// The formats.
const (
	PNG Format = "png"
	SVG Format = "svg"
	PDF Format = "pdf"
)

// FormatOf is the format that the ending of a file's name asks for.
func FormatOf(path string) (Format, error) {
	switch ending := strings.ToLower(filepath.Ext(path)); ending {
	case ".png", ".svg", ".pdf":
		return Format(ending[1:]), nil
	}
	return "", fmt.Errorf("%s: want a name that ends in .png, .svg or .pdf", path)
}

// Write draws on a white canvas and writes it. dpi is for PNG: dots per inch. Equal
// drawings give equal bytes.
func Write(w io.Writer, format Format, width, height vg.Length, dpi int, drawOn func(draw.Canvas)) error {
	var err error
	switch format {
	case PNG:
		canvas := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi))
		drawOn(draw.New(canvas))
		_, err = vgimg.PngCanvas{Canvas: canvas}.WriteTo(w)
	case SVG:
		canvas := vgsvg.New(width, height)
		drawOn(draw.New(canvas))
		var page bytes.Buffer
		if _, err = canvas.WriteTo(&page); err == nil {
			_, err = w.Write(bytes.ReplaceAll(page.Bytes(), []byte(svgFont), []byte(svgFonts)))
		}
	case PDF:
		canvas := vgpdf.New(width, height)
		drawOn(draw.NewCanvas(latin1{canvas}, width, height))
		_, err = canvas.WriteTo(w)
	default:
		err = fmt.Errorf("format %q, want %s, %s or %s", format, PNG, SVG, PDF)
	}
	if err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	return nil
}

// DPI is the resolution of pictures for people to show.
const DPI = 200

// margins leaves room at the edges.
func margins(c draw.Canvas) draw.Canvas {
	return draw.Crop(c, vg.Points(6), -vg.Points(4), vg.Points(6), -vg.Points(8))
}

// WriteGrid writes plots in rows and columns of equal sizes, with the legends of the rows beside them,
// all of the widest one's width, which is part of the whole width.
func WriteGrid(w io.Writer, format Format, width, height vg.Length, dpi int, plots [][]*plot.Plot, legends ...*Legend) error {
	beside := vg.Length(0)
	for _, l := range legends {
		beside = max(beside, l.Width())
	}
	tiles := draw.Tiles{Rows: len(plots), Cols: len(plots[0]), PadX: vg.Points(14), PadY: vg.Points(14)}
	return Write(w, format, width, height, dpi, func(c draw.Canvas) {
		c = margins(c)
		cells := plot.Align(plots, tiles, draw.Crop(c, 0, -beside, 0, 0))
		for row := range plots {
			for column, p := range plots[row] {
				p.Draw(cells[row][column])
			}
			if row < len(legends) {
				at := c
				at.Min.X = c.Max.X - beside + vg.Points(14)
				at.Max.Y = plots[row][0].DataCanvas(cells[row][0]).Max.Y
				legends[row].Draw(at)
			}
		}
	})
}

// svgFont is what an SVG asks for; svgFonts adds fonts of the same widths for readers
// that lack it.
const (
	svgFont  = "font-family:Liberation Sans;"
	svgFonts = "font-family:'Liberation Sans',Arial,Helvetica,sans-serif;"
)

// A PDF would hold the time of its making, and its objects in the order of a map.
func init() {
	fpdf.SetDefaultCreationDate(time.Unix(0, 0).UTC())
	fpdf.SetDefaultModificationDate(time.Unix(0, 0).UTC())
	fpdf.SetDefaultCatalogSort(true)
}

// latin1 encodes text as the fonts of a PDF have it; what they lack is a question mark.
type latin1 struct{ *vgpdf.Canvas }

func (c latin1) FillString(f font.Face, at vg.Point, text string) {
	encoded := make([]byte, 0, len(text))
	for _, r := range text {
		b, ok := charmap.Windows1252.EncodeRune(r)
		if !ok {
			b = '?'
		}
		encoded = append(encoded, b)
	}
	c.Canvas.FillString(f, at, string(encoded))
}
