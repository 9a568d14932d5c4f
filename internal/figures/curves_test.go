package figures

import (
	"bytes"
	"image/png"
	"math"
	"testing"
)

func TestWriteCurves(t *testing.T) {
	var steps, values []float64
	for i := range 5000 {
		steps, values = append(steps, float64(i+1)), append(values, 1/float64(i+1))
	}
	var one, two bytes.Buffer
	panels := []Panel{
		{Title: "loss", Log: true, Lines: []Line{{Name: "a", Steps: steps, Values: values}, {Name: "flat", Steps: []float64{1, 2}, Values: []float64{0.5, 0.5}, Color: 1}}},
		{Title: "empty", Lines: []Line{{Name: "b", Steps: []float64{1}, Values: []float64{math.NaN()}}}},
		{Title: "one point", Log: true, Lines: []Line{{Name: "c", Steps: []float64{1}, Values: []float64{0.1}, Dashed: true}}},
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
