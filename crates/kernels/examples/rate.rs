fn main() {
    kernels::product::rate();
}
