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

// Promise is what a budget is certified to keep: that the expected loss on a prompt is at most Epsilon, with a confidence.
type Promise struct {
	Loss       Loss
	Epsilon    float64 // in the unit of the loss
	Confidence float64
}

// Check is an error unless a budget can keep the promise, and one may not.
func (p Promise) Check() error {
	if err := p.Loss.Check(); err != nil {
		return err
	}
	if !(p.Epsilon > 0 && p.Epsilon < p.Loss.Scale()) {
		return fmt.Errorf("epsilon: got %v, want above 0 and below %v %s, the most that a prompt can lose", p.Epsilon, p.Loss.Scale(), p.Loss.Unit())
	}
	if !(p.Confidence >= 0.5 && p.Confidence < 1) {
		return fmt.Errorf("confidence: got %v, want 0.5 or more and below 1", p.Confidence)
	}
	return nil
}

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
