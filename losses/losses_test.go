package losses_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	_ "glimpse/kernels/backends" // which tests open by name
	"glimpse/losses"
)

// scores are random ones of a prompt: what is learned, logarithmic, and the target.
func scores(rng *rand.Rand, heads, columns int) (learned, target []float64) {
	learned, target = make([]float64, heads*columns), make([]float64, heads*columns)
	for i := range learned {
		learned[i] = math.Log(rng.Float64() / float64(columns))
		target[i] = rng.Float64() / float64(columns)
	}
	return learned, target
}

// paper is the loss of one layer by its formula in the papers (LookaheadKV eq. 5, KL;
// Judge Q eq. 5, MSE), and its gradient with respect to the logarithms.
var paper = map[string]func(learned, target []float64, heads, columns int) (float64, []float64){
	"kl": func(learned, target []float64, heads, columns int) (float64, []float64) {
		value, gradient := 0.0, make([]float64, len(learned))
		for h := range heads {
			sumS, sumT := 0.0, 0.0
			for j := range columns {
				sumS += math.Exp(learned[h*columns+j])
				sumT += target[h*columns+j]
			}
			for j := range columns {
				at := h*columns + j
				s, p := math.Exp(learned[at])/sumS, target[at]/sumT
				value += p * math.Log(p/s) / float64(heads)
				gradient[at] = (s - p) / float64(heads)
			}
		}
		return value, gradient
	},
	"mse": func(learned, target []float64, heads, columns int) (float64, []float64) {
		value, gradient := 0.0, make([]float64, len(learned))
		for i, l := range learned {
			e := math.Exp(l) - target[i]
			value += e * e / float64(heads*columns)
			gradient[i] = 2 * e * math.Exp(l) / float64(heads*columns)
		}
		return value, gradient
	},
}

func init() { paper["distil"] = paper["kl"] } // of the scores; what it says of answers has tests in training

// TestMixedBatch: what is minimised is the paper's loss times one constant, so that
// the samples of a batch have the weights of the paper whatever their lengths.
func TestMixedBatch(t *testing.T) {
	const heads, layers = 3, 2
	for _, name := range losses.Losses.Names() {
		loss, err := losses.Losses.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		formula, ok := paper[name]
		if !ok {
			t.Fatalf("loss %q has no formula in this test", name)
		}
		rng := rand.New(rand.NewPCG(5, 6))
		b, err := kernels.Open("reference64")
		if err != nil {
			t.Fatal(err)
		}
		for _, columns := range []int{1, 16, 1000, 5000} {
			learned, target := scores(rng, heads, columns)
			value, gradient := formula(learned, target, heads, columns)
			got, grad := kernels.FromF64([]float64{0}), kernels.NewTensor(kernels.F64, heads, columns)
			logs := make([]float64, len(target)) // as targets are kept
			for i, v := range target {
				logs[i] = math.Log(v)
			}
			loss.Func(b, got, grad, kernels.FromF64(learned, heads, columns), kernels.FromF64(logs, heads, columns), layers*heads, 1)
			for i := range gradient {
				gradient[i] *= loss.Scale / layers
			}
			at := name + " of the paper"
			compare.Close(t, at, []float64{loss.Report(got.F64()[0]) * layers}, []float64{value}, 1e-9, compare.Floor(1e-12))
			compare.Close(t, at+": gradient", grad.F64(), gradient, 1e-9, compare.Floor(1e-12))
		}
	}
}

// TestGradientsAgainstFiniteDifferences: what a loss writes as its gradient is that of what it
// adds to the loss, element by element.
func TestGradientsAgainstFiniteDifferences(t *testing.T) {
	const heads, columns, layers, step = 3, 17, 2, 1e-5
	b, err := kernels.Open("reference64")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range losses.Losses.Names() {
		t.Run(name, func(t *testing.T) {
			loss, err := losses.Losses.Lookup(name)
			if err != nil {
				t.Fatal(err)
			}
			learned, target := scores(rand.New(rand.NewPCG(7, 8)), heads, columns)
			for i, v := range target {
				target[i] = math.Log(v)
			}
			x, goal, grad := kernels.FromF64(learned, heads, columns), kernels.FromF64(target, heads, columns), kernels.NewTensor(kernels.F64, heads, columns)
			value := func() float64 {
				sum := kernels.FromF64([]float64{0})
				loss.Func(b, sum, grad, x, goal, layers*heads, 1)
				return sum.F64()[0]
			}
			value()
			got, want := append([]float64(nil), grad.F64()...), make([]float64, heads*columns)
			for i, at := range x.F64() {
				x.F64()[i] = at + step
				up := value()
				x.F64()[i] = at - step
				want[i] = (up - value()) / (2 * step)
				x.F64()[i] = at
			}
			compare.Close(t, "gradient", got, want, 1e-6, compare.Floor(1e-4))
		})
	}
}
