// Contextschart draws the table that "llamacppbench -contexts" prints, read from the standard input: tokens per second of prompts and of decoding
// behind them against the prompt's length, both axes logarithmic, with what the machine could do at most.
//
//	go -C lab run ./bench/contextschart -operations 430e9 -bytes 30e9 -model FILE.gguf -o results/contexts-speed.svg <results/llama-cpp.md
//
// -operations and -bytes are the machine's rates per second. A prompt's limit is its operations over the former, that of a decoding step the bytes of
// the weights and of a full bf16 cache over the latter.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"image/color"
	"log"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"glimpse/kernels"
	_ "glimpse/kernels/backends"
	"glimpse/model"
)

var (
	operations = flag.Float64("operations", 0, "multiply-adds count two, a second")
	bytes      = flag.Float64("bytes", 0, "a second")
	path       = flag.String("model", "", "file of the model")
	out        = flag.String("o", "contexts-speed.svg", "chart")
)

// rates are a program's, by tokens.
type rates struct {
	name              string
	prompts, decoding plotter.XYs
}

func main() {
	log.SetFlags(0)
	flag.Parse()
	if err := run(); err != nil {
		log.Fatal("contextschart: ", err)
	}
}

func run() error {
	all, lengths, err := readTable()
	if err != nil {
		return err
	}
	limit, err := machineLimit(lengths)
	if err != nil {
		return err
	}
	canvas := vgsvg.New(11*vg.Inch, 4.5*vg.Inch)
	for i, title := range []string{"Prompt, tokens/s", "Decoding behind it, tokens/s"} {
		p := plot.New()
		p.Title.Text, p.X.Label.Text = title, "tokens of the prompt"
		p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
		p.X.Tick.Marker = plot.ConstantTicks(ticks(lengths))
		p.Y.Tick.Marker = plot.ConstantTicks(rateTicks())
		p.Legend.Left, p.Legend.Top = true, false
		p.Add(plotter.NewGrid())
		for n, r := range append(slices.Clone(all), limit) {
			points := r.prompts
			if i == 1 {
				points = r.decoding
			}
			line, dots, err := plotter.NewLinePoints(points)
			if err != nil {
				return err
			}
			line.Width, line.Color, dots.Color, dots.Shape = vg.Points(1.5), plotutil.Color(n), plotutil.Color(n), draw.CircleGlyph{}
			if n == len(all) {
				line.Color, line.Dashes = color.Gray{120}, plotutil.Dashes(1)
				p.Add(line)
				p.Legend.Add(r.name, line)
				continue
			}
			p.Add(line, dots)
			p.Legend.Add(r.name, line, dots)
		}
		p.Y.Min /= 3 // room for the legend
		p.X.Max *= 1.05
		half := vg.Length(i) * 5.5 * vg.Inch
		p.Draw(draw.Crop(draw.New(canvas), half, half-5.5*vg.Inch, 0, 0))
	}
	f, err := os.Create(*out)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(f); err != nil {
		return err
	}
	return f.Close()
}

func rateTicks() (out []plot.Tick) {
	for _, n := range []float64{5, 10, 20, 50, 100, 200, 500, 1000, 2000} {
		out = append(out, plot.Tick{Value: n, Label: fmt.Sprint(n)})
	}
	return out
}

func ticks(lengths []int) (out []plot.Tick) {
	for _, n := range lengths {
		out = append(out, plot.Tick{Value: float64(n), Label: fmt.Sprintf("%dK", n/1024)})
	}
	return out
}

// readTable reads the rows "| file | tokens | program | prompt | decoding | …".
func readTable() (all []*rates, lengths []int, err error) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		cells := strings.Split(in.Text(), "|")
		if len(cells) < 6 || !strings.Contains(cells[1], ".gguf") {
			continue
		}
		var x [3]float64
		for i, at := range []int{2, 4, 5} {
			if x[i], err = strconv.ParseFloat(strings.Trim(cells[at], " *"), 64); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", in.Text(), err)
			}
		}
		name := strings.TrimSpace(cells[3])
		i := slices.IndexFunc(all, func(r *rates) bool { return r.name == name })
		if i < 0 {
			i, all = len(all), append(all, &rates{name: name})
		}
		all[i].prompts = append(all[i].prompts, plotter.XY{X: x[0], Y: x[1]})
		all[i].decoding = append(all[i].decoding, plotter.XY{X: x[0], Y: x[2]})
		if !slices.Contains(lengths, int(x[0])) {
			lengths = append(lengths, int(x[0]))
		}
	}
	if len(all) == 0 {
		err = fmt.Errorf("the standard input has no row of a table that llamacppbench -contexts prints")
	}
	return all, lengths, err
}

// machineLimit is what the rates of the machine allow.
func machineLimit(lengths []int) (*rates, error) {
	m, err := model.Open(*path, model.Options{CacheDType: "bf16"})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	c := &m.Config
	linear := 2 * float64(m.Network.Parameters()) // a row; the head runs once
	out := &rates{name: "limit of the machine, full cache"}
	for _, n := range lengths {
		attention := 0.0
		for l := range c.Layers {
			attention += 2 * float64(n) * float64(c.Heads*c.KV(l).Dim) // two products over half of the rows before
		}
		read := float64(m.WeightBytes()) + float64(c.CacheBytes(n, kernels.BF16))
		if e := m.Network.Embedding; e != m.Network.Head.Weight { // a step reads one row of it
			read -= float64(e.Bytes())
		}
		out.prompts = append(out.prompts, plotter.XY{X: float64(n), Y: *operations / (linear + attention)})
		out.decoding = append(out.decoding, plotter.XY{X: float64(n), Y: *bytes / read})
		if math.IsInf(out.prompts[0].Y, 0) || *operations <= 0 || *bytes <= 0 {
			return nil, fmt.Errorf("-operations and -bytes: want rates above 0")
		}
	}
	return out, nil
}
