package eviction

import (
	"fmt"
	"slices"

	"glimpse/internal/suggest"
)

// Names of losses.
const (
	LossNLL       = "nll"       // nats per token that the full cache's own answer gets less likely
	LossAccuracy  = "accuracy"  // points of score that are lost, as a share
	LossAgreement = "agreement" // 1 − token F1 of the answer and the full cache's
)

// Losses are the names, as flags list them.
func Losses() []string { return []string{LossNLL, LossAccuracy, LossAgreement} }

// Loss measures what eviction costs on one prompt against the full cache. It is negative where the evicted cache does
// better. As a number it is in [-1, 1]: nats are clipped to ±Clip per token and divided by it. [Loss.Scale] gives the unit back.
type Loss struct {
	Name string
	Clip float64 // nats per token, of LossNLL
}

// Check is an error unless the loss is one of Losses, with a clip where it needs one.
func (l Loss) Check() error {
	if !slices.Contains(Losses(), l.Name) {
		return suggest.Unknown("loss", l.Name, Losses())
	}
	if l.Name == LossNLL && !(l.Clip > 0 && l.Clip <= 100) {
		return fmt.Errorf("clip of the loss nll: got %v nats per token, want above 0 and at most 100", l.Clip)
	}
	return nil
}

// Scale is what 1 stands for in the loss's unit.
func (l Loss) Scale() float64 {
	if l.Name == LossNLL {
		return l.Clip
	}
	return 1
}

// Floor is the least that a loss can be.
func (l Loss) Floor() float64 {
	if l.Name == LossAgreement {
		return 0
	}
	return -1
}

// Unit is what people read a loss in.
func (l Loss) Unit() string {
	switch l.Name {
	case LossNLL:
		return "nats per token"
	case LossAccuracy:
		return "share of the score"
	}
	return "share of the tokens"
}

// OfNLL is the loss of a mean negative log-likelihood of the full cache's answer under eviction, both in nats per token.
func (l Loss) OfNLL(evicted, full float64) float64 { return min(1, max(-1, (evicted-full)/l.Clip)) }

// OfScore is the loss of an answer's score, 0 to 1, against that of the full cache's.
func (Loss) OfScore(evicted, full float64) float64 { return min(1, max(-1, full-evicted)) }

// OfAgreement is the loss of a token F1 of the two answers, see [TokenF1].
func (Loss) OfAgreement(f1 float64) float64 { return 1 - f1 }

// TokenF1 is the harmonic mean of precision and recall of tokens as bags; 1 for two that
// are empty.
func TokenF1(got, want []int32) float64 {
	if len(got) == 0 && len(want) == 0 {
		return 1
	}
	count := make(map[int32]int)
	for _, id := range want {
		count[id]++
	}
	common := 0
	for _, id := range got {
		if count[id] > 0 {
			count[id]--
			common++
		}
	}
	return 2 * float64(common) / float64(len(got)+len(want))
}
