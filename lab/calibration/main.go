// Command calibration shows how often the promise of evict calibrate holds, and when the server's watch sees that it does not.
//
//	go -C lab run ./calibration                     the page lab/results/calibration.md, but for its head
//	go -C lab run ./calibration -rows RUN FILE      makes rows of the folder of an evaluation, as measured/*.csv.gz
//
// Rows are losses of measured prompts, one of a document. They are taken for all prompts there are, so that the expected loss is known:
// their mean. A calibration draws n of them, with replacement.
package main

import (
	"compress/gzip"
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"glimpse/checkpoints/objectstore"
	"glimpse/evaluation/calibration"
	"glimpse/evaluation/runs"
	"glimpse/eviction"
	"glimpse/internal/confidence"
	"glimpse/internal/listing"
	"glimpse/internal/stats"
)

var (
	splits = flag.Int("splits", 200, "calibrations of each kind")
	part   = flag.String("part", "", "holds or watch: that part of the page alone, whose shorter one is watch")
	rows   = flag.Bool("rows", false, "make rows: the arguments are a run's folder and a file")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	var err error
	if *rows {
		err = makeRows(flag.Arg(0), flag.Arg(1))
	} else {
		err = writePage(os.Stdout)
	}
	if err != nil {
		log.Fatal("calibration: ", err)
	}
}

// losses that rows have, with their clip.
var losses = []eviction.Loss{{Name: eviction.LossNLL, Clip: 1}, {Name: eviction.LossAgreement}}

// makeRows writes the losses of a run, finished or not.
func makeRows(run, path string) error {
	stored, err := runs.Read(context.Background(), run, 0, objectstore.Settings{})
	if err != nil {
		return err
	}
	var all [][]string
	for _, l := range losses {
		p := calibration.Promise{Promise: eviction.Promise{Loss: l}}
		m, err := p.Measure(stored.Predictions, func(_ string, index int) int { return index })
		if err != nil {
			return err
		}
		for _, c := range m.Cells {
			for i, x := range c.Losses {
				all = append(all, []string{l.Name, c.Label(), c.Budget.String(), strconv.Itoa(i), strconv.FormatFloat(x, 'g', 4, 64)})
			}
		}
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(f)
	return errors.Join(csv.NewWriter(z).WriteAll(all), z.Close(), f.Close())
}

// population are the losses of all prompts there are, cell by cell.
type population struct {
	name  string
	loss  eviction.Loss
	cells []calibration.Cell
}

// readRows reads what makeRows has written.
func readRows(name string) (out []population, err error) {
	f, err := os.Open(filepath.Join("calibration", "measured", name+".csv.gz"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	all, err := csv.NewReader(z).ReadAll()
	if err != nil {
		return nil, err
	}
	for _, l := range losses {
		p := population{name: name, loss: l}
		own := slices.DeleteFunc(slices.Clone(all), func(r []string) bool { return r[0] != l.Name })
		for _, group := range listing.Group(own, func(r []string) [2]string { return [2]string{r[1], r[2]} }) {
			c := calibration.Cell{Policy: group[0][1]}
			if c.Budget, err = eviction.ParseBudget(group[0][2]); err != nil {
				return nil, err
			}
			for _, r := range group {
				x, err := strconv.ParseFloat(r[4], 64)
				if err != nil {
					return nil, err
				}
				c.Losses = append(c.Losses, x)
			}
			p.cells = append(p.cells, c)
		}
		out = append(out, p)
	}
	return out, nil
}

// simulated is a population of scores that are lost, won or kept: more are lost at smaller budgets.
func simulated() population {
	p := population{name: "simulated", loss: eviction.Loss{Name: eviction.LossAccuracy}}
	r := rand.New(rand.NewPCG(66, 1))
	for i, policy := range []string{"one", "other"} {
		for k, text := range []string{"80%", "60%", "40%", "25%", "15%"} {
			b, err := eviction.ParseBudget(text)
			if err != nil {
				panic(err)
			}
			c := calibration.Cell{Policy: policy, Budget: b}
			for range 2000 {
				x, lost := 0.0, 0.03+0.02*float64(k*k)/float64(1+i)
				switch u := r.Float64(); {
				case u < lost:
					x = 1
				case u < lost+0.02:
					x = -1
				}
				c.Losses = append(c.Losses, x)
			}
			p.cells = append(p.cells, c)
		}
	}
	return p
}

// draw is a calibration's sample: n documents, the same for all cells.
func (p *population) draw(r *rand.Rand, n int) []calibration.Cell {
	at := make([]int, n)
	for i := range at {
		at[i] = r.IntN(len(p.cells[0].Losses))
	}
	return listing.Map(p.cells, func(c calibration.Cell) calibration.Cell {
		c.Losses = listing.Map(at, func(i int) float64 { return c.Losses[i] })
		return c
	})
}

// mean is the expected loss of a cell, in the loss's unit.
func (p *population) mean(policy string, b eviction.Budget) float64 {
	i := slices.IndexFunc(p.cells, func(c calibration.Cell) bool { return c.Policy == policy && c.Budget == b })
	m, _ := stats.Mean(p.cells[i].Losses)
	return m * p.loss.Scale()
}

func (p *population) promise(epsilon float64) calibration.Promise {
	return calibration.Promise{Promise: eviction.Promise{Loss: p.loss, Epsilon: epsilon, Confidence: 0.95}}
}

// best is the smallest budget that keeps a promise, of all policies, if all larger ones of the policy do.
func (p *population) best(epsilon float64) (best *eviction.Budget) {
	for _, group := range listing.Group(p.cells, calibration.Cell.Label) {
		slices.SortFunc(group, func(a, b calibration.Cell) int { return b.Budget.Compare(a.Budget) })
		for _, c := range group {
			if p.mean(c.Policy, c.Budget) > epsilon {
				break
			}
			if best == nil || c.Budget.Compare(*best) < 0 {
				best = &c.Budget
			}
		}
	}
	return best
}

// tally is what came of many calibrations.
type tally struct {
	holds, none, best int
	budgets           float64 // sum of the shares that were chosen
}

// calibrate repeats a calibration.
func (p *population) calibrate(epsilon float64, n int) (t tally) {
	best := p.best(epsilon)
	for run := range *splits {
		r := p.promise(epsilon).Certify(p.draw(rand.New(rand.NewPCG(uint64(run), uint64(n))), n), 0)
		if r.Chosen == nil {
			t.none++
			t.holds++ // all is kept
			t.budgets++
			if best == nil {
				t.best++
			}
			continue
		}
		if p.mean(r.Chosen.Policy, r.Chosen.Budget) <= epsilon {
			t.holds++
		}
		if best != nil && r.Chosen.Budget == *best {
			t.best++
		}
		t.budgets += r.Chosen.Budget.Share()
	}
	return t
}

var sizes = []int{100, 200, 300}

// writeHolds tells how often the promise holds at some losses that people may ask for, and at the hardest ones.
func (p *population) writeHolds(w io.Writer, epsilons []float64) {
	for _, e := range epsilons {
		best := "100%"
		if b := p.best(e); b != nil {
			best = b.String()
		}
		fmt.Fprintf(w, "| %s | %s | %.3g | %s |", p.name, p.loss.Name, e, best)
		for _, n := range sizes {
			t := p.calibrate(e, n)
			all := float64(*splits)
			fmt.Fprintf(w, " %.1f%% | %.0f%% | %.0f%% | %.0f%% |", 100*float64(t.holds)/all, 100*t.budgets/all, 100*float64(t.best)/all, 100*float64(t.none)/all)
		}
		fmt.Fprintln(w)
	}
}

// writeHardest promises of every cell a hair less than it loses, so that to certify it is wrong, and tells the worst.
func (p *population) writeHardest(w io.Writer) {
	fmt.Fprintf(w, "| %s | %s |", p.name, p.loss.Name)
	for _, n := range sizes {
		least, where := *splits+1, ""
		for _, c := range p.cells {
			e := 0.999 * p.mean(c.Policy, c.Budget)
			if !(e > 0 && e < p.loss.Scale()) {
				continue
			}
			if t := p.calibrate(e, n); t.holds < least {
				least, where = t.holds, fmt.Sprintf("%s %v, %.3f", c.Policy, c.Budget, e)
			}
		}
		fmt.Fprintf(w, " %.1f%% (%s) |", 100*float64(least)/float64(*splits), where)
	}
	fmt.Fprintln(w)
}

// writeWatch tells when the watch sees that a budget which was calibrated on one population loses more on another.
func writeWatch(w io.Writer, here, there *population, epsilon float64) {
	r := here.promise(epsilon).Certify(here.cells, 0)
	if r.Chosen == nil {
		fmt.Fprintf(w, "| %s | %.3g | nothing is certified | | | | |\n", here.loss.Name, epsilon)
		return
	}
	const most = 1000
	seen := func(p *population) (after []float64) {
		i := slices.IndexFunc(p.cells, func(c calibration.Cell) bool { return c.Policy == r.Chosen.Policy && c.Budget == r.Chosen.Budget })
		all := p.cells[i].Losses
		for run := range *splits {
			draw := rand.New(rand.NewPCG(uint64(run), 7))
			s := confidence.NewTest(epsilon/p.loss.Scale(), p.loss.Floor(), 0.05)
			for n := range most {
				if s.Add(all[draw.IntN(len(all))]); s.Refuted() {
					after = append(after, float64(n+1))
					break
				}
			}
		}
		return after
	}
	median := func(x []float64) string {
		if 2*len(x) <= *splits {
			return "–"
		}
		slices.Sort(x)
		return fmt.Sprintf("%.0f", x[(*splits)/2])
	}
	a, b := seen(here), seen(there)
	fmt.Fprintf(w, "| %s | %.3g | %s %v | %.3f | %.1f%% | %.3f | %.1f%% | %s |\n", here.loss.Name, epsilon, r.Chosen.Policy, r.Chosen.Budget,
		here.mean(r.Chosen.Policy, r.Chosen.Budget), 100*float64(len(a))/float64(*splits), there.mean(r.Chosen.Policy, r.Chosen.Budget), 100*float64(len(b))/float64(*splits), median(b))
}

// writePage writes the tables of the page.
func writePage(w io.Writer) error {
	prose, err := readRows("prose")
	if err != nil {
		return err
	}
	code, err := readRows("code")
	if err != nil {
		return err
	}
	made := simulated()
	all := []*population{&prose[0], &prose[1], &made}
	asked := map[string][]float64{eviction.LossNLL: {0.02, 0.05, 0.1, 0.2}, eviction.LossAgreement: {0.2, 0.3, 0.4, 0.5}, eviction.LossAccuracy: {0.05, 0.1, 0.2}}
	if *part != "holds" {
		writeWatched(w, prose, code, asked)
	}
	if *part != "watch" {
		writeHeld(w, all, asked)
	}
	return nil
}

// writeWatched writes what is lost on both kinds of prompts, and when it is seen that one takes the other's place.
func writeWatched(w io.Writer, prose, code []population, asked map[string][]float64) {
	fmt.Fprintf(w, "%d prompts of prose and %d of code; %d calibrations of each kind.\n\n", len(prose[0].cells[0].Losses), len(code[0].cells[0].Losses), *splits)
	fmt.Fprint(w, "## What is lost\n\n| policy, budget | nll, prose | nll, code | agreement, prose | agreement, code |\n|:---|---:|---:|---:|---:|\n")
	for _, c := range prose[0].cells {
		fmt.Fprintf(w, "| %s %v |", c.Policy, c.Budget)
		for i := range losses {
			fmt.Fprintf(w, " %.3f | %.3f |", prose[i].mean(c.Policy, c.Budget), code[i].mean(c.Policy, c.Budget))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "\n## When the traffic changes\n\n| loss | ε | certified on code | loss, code | alarms on code | loss, prose | seen on prose | after |\n|:---|---:|:---|---:|---:|---:|---:|---:|\n")
	for i := range losses {
		for _, e := range asked[losses[i].Name] {
			writeWatch(w, &code[i], &prose[i], e)
		}
	}
}

// writeHeld writes how often promises hold.
func writeHeld(w io.Writer, all []*population, asked map[string][]float64) {
	fmt.Fprint(w, "\n## How often the promise holds\n\n| rows | loss | ε | best |")
	for _, n := range sizes {
		fmt.Fprintf(w, " n = %d: holds | mean budget | best found | nothing |", n)
	}
	fmt.Fprint(w, "\n|:---|:---|---:|---:|"+"---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, p := range all {
		p.writeHolds(w, asked[p.loss.Name])
	}
	fmt.Fprint(w, "\n## The hardest promises\n\n| rows | loss | n = 100 | n = 200 | n = 300 |\n|:---|:---|---:|---:|---:|\n")
	for _, p := range all {
		p.writeHardest(w)
	}
}
