package figures

import (
	"bytes"
	"image/png"
	"math"
	"testing"
)

func TestWriteCurves(t *testing.T) {
	curve := func(name string, look int, dashed bool, values ...float64) *Series {
		c := NewCurve(name, look, dashed)
		for i, v := range values {
			c.Add(float64(i+1), v)
		}
		return c
	}
	var values []float64
	for i := range 5000 {
		values = append(values, 1/float64(i+1))
	}
	var one, two bytes.Buffer
	panels := []Panel{
		{Title: "loss", Log: true, Lines: []*Series{curve("a", 0, false, values...), curve("flat", 1, false, 0.5, 0.5)}},
		{Title: "empty", Lines: []*Series{curve("b", 0, false, math.NaN())}},
		{Title: "one point", Log: true, Lines: []*Series{curve("c", 0, true, 0.1)}},
	}
	if err := WriteCurves(&one, panels); err != nil {
		t.Fatal(err)
	}
	if err := WriteCurves(&two, panels[2:]); err != nil {
		t.Fatal(err)
	}
	a, err := png.Decode(&one)
	if err != nil {
		t.Fatal(err)
	}
	b, err := png.Decode(&two)
	if err != nil {
		t.Fatal(err)
	}
	if a.Bounds().Dx() != b.Bounds().Dx() || a.Bounds().Dy() < 2*b.Bounds().Dy()-2 {
		t.Errorf("two panels %v, one panel %v: want twice the height", a.Bounds(), b.Bounds())
	}
	// A panel whose curve is drawn has pixels of the curve's colour.
	found := false
	for y := range a.Bounds().Dy() / 2 {
		for x := range a.Bounds().Dx() {
			r, g, bl, _ := a.At(x, y).RGBA()
			found = found || r>>8 == 0 && g>>8 == 114 && bl>>8 == 178
		}
	}
	if !found {
		t.Error("the first curve is not there")
	}
	if err := WriteCurves(&one, panels[1:2]); err == nil {
		t.Error("no points: want an error")
	}
}
