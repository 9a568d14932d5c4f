package figures

import (
	"cmp"
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// RoundTicks marks multiples of 1, 2 or 5 times a power of ten, about Most of them (0: 6).
type RoundTicks struct {
	Most    int
	Integer bool // no steps below 1
}

// Ticks implements plot.Ticker.
func (r RoundTicks) Ticks(lo, hi float64) []plot.Tick {
	most := r.Most
	most = cmp.Or(most, 6)
	if !(hi > lo) {
		return []plot.Tick{{Value: lo, Label: tickLabel(lo, 6)}}
	}
	power := math.Floor(math.Log10((hi - lo) / float64(most)))
	step := 0.0
	for _, m := range []float64{1, 2, 5, 10} {
		if step = m * math.Pow(10, power); (hi-lo)/step <= float64(most) {
			break
		}
	}
	if r.Integer {
		step = max(1, step)
	}
	var ticks []plot.Tick
	for i := math.Ceil(lo/step-1e-9) + 0; i*step <= hi+1e-9*step; i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: tickLabel(i*step, 6)})
	}
	return ticks
}

// LogTicks marks powers of ten, and 2 and 5 times them where there are few.
type LogTicks struct{}

// Ticks implements plot.Ticker. The limits are above 0.
func (LogTicks) Ticks(lo, hi float64) []plot.Tick {
	digits := []float64{1}
	switch decades := math.Log10(hi / lo); {
	case decades < 0.7:
		return RoundTicks{}.Ticks(lo, hi)
	case decades <= 2.5:
		digits = []float64{1, 2, 5}
	}
	var ticks []plot.Tick
	for power := math.Floor(math.Log10(lo)); power <= math.Ceil(math.Log10(hi)); power++ {
		for _, d := range digits {
			if v := d * math.Pow(10, power); v >= lo*(1-1e-9) && v <= hi*(1+1e-9) {
				ticks = append(ticks, plot.Tick{Value: v, Label: tickLabel(v, 6)})
			}
		}
	}
	return ticks
}

// tickLabel writes a value without the digits that arithmetic has added.
func tickLabel(v float64, digits int) string {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', digits, 64), 64) // of a number that is printed
	return strconv.FormatFloat(rounded, 'g', -1, 64)
}
