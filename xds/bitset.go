package xds

import (
	"iter"
	"math/bits"
)

// id is a small number that stands for a resource name within its type.
type id = uint32

// bitset is a set of ids. Its zero value is empty.
type bitset []uint64

// has reports whether i is in the set; ids beyond its size are not.
func (b bitset) has(i id) bool {
	w := int(i / 64)
	return w < len(b) && b[w]&(1<<(i%64)) != 0
}

// set adds i, growing the set as needed.
func (b *bitset) set(i id) {
	w := int(i / 64)
	if w >= len(*b) {
		*b = append(*b, make([]uint64, w+1-len(*b))...)
	}
	(*b)[w] |= 1 << (i % 64)
}

// unset takes i out. It never shrinks the set, so it is safe while all runs.
func (b bitset) unset(i id) {
	if w := int(i / 64); w < len(b) {
		b[w] &^= 1 << (i % 64)
	}
}

func (b bitset) empty() bool {
	for _, w := range b {
		if w != 0 {
			return false
		}
	}
	return true
}

// count returns how many ids are in the set.
func (b bitset) count() int {
	n := 0
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	return n
}

// all yields the ids in ascending order. The set may lose ids meanwhile.
func (b bitset) all() iter.Seq[id] {
	return func(yield func(id) bool) {
		for w := range b {
			for word := b[w]; word != 0; word &= word - 1 {
				if !yield(id(w*64 + bits.TrailingZeros64(word))) {
					return
				}
			}
		}
	}
}

// union adds the ids of o.
func (b *bitset) union(o bitset) {
	if len(o) > len(*b) {
		*b = append(*b, make([]uint64, len(o)-len(*b))...)
	}
	for w, word := range o {
		(*b)[w] |= word
	}
}
