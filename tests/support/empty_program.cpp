// Nothing: test_headers exists for its precompiled headers.
int main() {}
