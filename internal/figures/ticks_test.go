package figures

import (
	"strings"
	"testing"

	"gonum.org/v1/plot"
)

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		name   string
		ticker plot.Ticker
		lo, hi float64
		want   string
	}{
		{"steps", RoundTicks{Integer: true}, 0, 30, "0 5 10 15 20 25 30"},
		{"few steps", RoundTicks{Integer: true}, 0, 3, "0 1 2 3"},
		{"many steps", RoundTicks{Integer: true}, 0, 7600, "0 2000 4000 6000"},
		{"percent", RoundTicks{}, 17.4, 20.2, "17.5 18 18.5 19 19.5 20"},
		{"a hundred", RoundTicks{}, 0, 100, "0 20 40 60 80 100"},
		{"thirty", RoundTicks{}, 40, 70, "40 45 50 55 60 65 70"},
		{"ten", RoundTicks{}, 0, 10, "0 2 4 6 8 10"},
		{"one value", RoundTicks{}, 3, 3, "3"},
		{"decades", LogTicks{}, 0.05, 600, "0.1 1 10 100"},
		{"a decade and a half", LogTicks{}, 8, 210, "10 20 50 100 200"},
		{"from between steps", LogTicks{}, 6, 120, "10 20 50 100"},
		{"within a decade", LogTicks{}, 0.00068, 0.00092, "0.0007 0.00075 0.0008 0.00085 0.0009"},
	} {
		var got []string
		for _, tick := range c.ticker.Ticks(c.lo, c.hi) {
			got = append(got, tick.Label)
			if tick.Value < c.lo-1e-9 || tick.Value > c.hi+1e-9 {
				t.Errorf("%s: tick %v is not within %v and %v", c.name, tick.Value, c.lo, c.hi)
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: got %s, want %s", c.name, text, c.want)
		}
	}
}
